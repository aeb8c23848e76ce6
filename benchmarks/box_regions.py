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
from enteron.datasets.layouts import open_dataset
from enteron.decoding import decode, preset
from enteron.fitting.frames import LabelledStudy
from enteron.fitting.scored_studies import StudyScorer
from enteron.folders.model import CALIBRATION, decoding_priors, default_model, load_calibration
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
        scorer = StudyScorer(model)
        entries = open_dataset(root).studies
        studies = list(scorer.labelled(entries, Path(temporary) / "features").values())
    show("highest score", [right_by_score(study) for study in studies])
    for path in (model / CALIBRATION, *options.calibration):
        calibration = load_calibration(path)
        priors = decoding_priors(calibration, path)
        temperature = calibration.likelihood.temperature_of(REGIONS[0])
        show(
            f"decoded, {path.name} with a temperature of {temperature:.2f} for regions",
            [right_by_events(study, priors, calibration) for study in studies],
        )


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
