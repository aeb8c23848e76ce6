"""Which study is which, without its name: hashes of its id and of some of its pictures.

A model folder keeps the fingerprints of the studies that trained it, so that a calibration on the
same studies is noticed: under the same id, or as the same pictures under another id.
"""

import hashlib

import numpy as np

from enteron.options import Options, Sha256
from enteron.study.study import Study

SAMPLED = 8  # pictures, spread evenly over the study


class StudyFingerprint(Options):
    """A study by two hashes, either of which recognises it."""

    id: Sha256
    """Hash of its id. Ids are short, so that whoever guesses one can confirm it."""

    pictures: Sha256 | None = None
    """Hash of the pixels of some pictures; None where none of them can be read."""

    def is_of(self, other: "StudyFingerprint") -> bool:
        """Whether both are of the same study, by its id or by its pictures."""
        same_pictures = self.pictures is not None and self.pictures == other.pictures
        return self.id == other.id or same_pictures


def study_id_hash(study: str) -> str:
    """SHA-256 of a study's id."""
    return hashlib.sha256(f"enteron study {study}".encode(errors="surrogatepass")).hexdigest()


def study_fingerprint(study: Study) -> StudyFingerprint:
    """The fingerprint of an opened study; reads a few pictures."""
    digest = hashlib.sha256()
    readable = False
    for row in np.unique(np.linspace(0, len(study) - 1, SAMPLED).astype(np.int64)).tolist():
        image = study.frame(int(study.numbers[row])).image
        if image is None:
            digest.update(b"unreadable;")
            continue
        readable = True
        digest.update(f"{image.shape};".encode())
        digest.update(np.ascontiguousarray(image).data)
    return StudyFingerprint(
        id=study_id_hash(study.id), pictures=digest.hexdigest() if readable else None
    )
