"""Regions of the model in the box on drawn studies of a capsule that it has never seen (NaviCam).

`enteron bench box_regions [-- --studies 12 --frames 400 --calibration FILE ...]`. Share of frames
in the right region, the mean over studies with a 95 % interval over them: by the highest score, and
decoded by `transit` with the calibration of the box. Every FILE is another `calibration.json`, by
which the same scores are decoded; it may belong to other weights.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from enteron.calibration import Calibration
from enteron.datasets.galar import find_studies
from enteron.datasets.submission import read_submission
from enteron.decoding import decode, preset
from enteron.fitting.frames import LabelledStudy, label_rows
from enteron.folders.model import (
    CALIBRATION,
    decoding_priors,
    default_model,
    load_calibration,
    open_model,
)
from enteron.inference.embed import embed_study
from enteron.inference.runtimes import default_runtime, make_encoder
from enteron.inference.score import score_study
from enteron.labels import REGIONS
from enteron.phantom.dataset import PhantomOptions, make_studies
from enteron.priors import Priors, load_priors

RESAMPLES = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=12)
    parser.add_argument("--frames", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1702)
    parser.add_argument("--model", type=Path, help="model folder (default: the one in the box)")
    parser.add_argument("--calibration", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    model = options.model or default_model()
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary) / "navicam"
        drawing = PhantomOptions(frames=options.frames, seed=options.seed, device="navicam")
        for _ in make_studies(root, options.studies, drawing, priors=load_priors()):
            pass
        studies = scored_studies(model, root, Path(temporary))
    show("highest score", [right_by_score(study) for study in studies])
    for path in (model / CALIBRATION, *options.calibration):
        calibration = load_calibration(path)
        priors = decoding_priors(calibration, path)
        temperature = calibration.likelihood.temperature_of(REGIONS[0])
        show(
            f"decoded, {path.name} with a temperature of {temperature:.2f} for regions",
            [right_by_events(study, priors, calibration) for study in studies],
        )


def scored_studies(model: Path, root: Path, features: Path) -> list[LabelledStudy]:
    """Test studies as the model scores them, beside their truth, which is a file of its own."""
    loaded = open_model(model)
    encoder = make_encoder(loaded.backbone, default_runtime(loaded.backbone))
    entries = find_studies(root)
    studies: list[LabelledStudy] = []
    for truth in read_submission(root / "truth.json"):
        with entries[truth.study].open() as study:
            embeddings = embed_study(study, encoder, features / f"{truth.study}.npy")
            scores = score_study(loaded.head, embeddings, frames_per_row=study.frames_per_row)
        studies.append(LabelledStudy(scores, label_rows(scores, truth)))
    return studies


def right_by_score(study: LabelledStudy) -> float:
    """Share of the frames with a region whose highest score is that region's."""
    return _share(study, study.scores.values[:, : len(REGIONS)].argmax(axis=1))


def right_by_events(study: LabelledStudy, priors: Priors, calibration: Calibration) -> float:
    """Share of the frames with a region that lie in an event of it."""
    decoded = np.full(len(study.truth), -1)
    for event in decode(study.scores, preset("transit"), priors, calibration):
        if event.label in REGIONS:
            start, stop = np.searchsorted(study.scores.axis.frames, (event.start, event.stop))
            decoded[start:stop] = REGIONS.index(event.label)
    return _share(study, decoded)


def _share(study: LabelledStudy, decided: NDArray[np.int64]) -> float:
    regions = study.truth[:, : len(REGIONS)]
    known = regions.any(axis=1)
    return float((regions.argmax(axis=1) == decided)[known].mean())


def show(name: str, shares: list[float]) -> None:
    values = np.array(shares)
    draws = np.random.default_rng(0).integers(values.size, size=(RESAMPLES, values.size))
    low, high = np.quantile(values[draws].mean(axis=1), (0.025, 0.975))
    each = " ".join(f"{value:.2f}" for value in values)
    print(f"{name}: {values.mean():.3f} [{low:.3f}, {high:.3f}]; by study {each}", flush=True)


if __name__ == "__main__":
    main()
