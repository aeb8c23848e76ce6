"""Which study is which, without its name: hashes of its id and of some of its pictures.

A model folder keeps the fingerprints of the studies that trained it, so that a calibration on the
same studies is noticed: under the same id, or as the same pictures under another id.
"""

import hashlib

import numpy as np

from enteron.study.study import Study
from enteron.types import StudyFingerprint, study_id_hash

SAMPLED = 8  # pictures, spread evenly over the study


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
