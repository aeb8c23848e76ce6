"""Label sequences with simulated scores, as in the benchmark `decoders`, for those of lesions."""

from dataclasses import dataclass

import numpy as np

from benchmarks._decoder_tables import Truth
from benchmarks._simulation import Level, SimulationOptions, simulate
from benchmarks.decoders import RATES, load_studies
from enteron.fitting.frames import LabelledStudy, label_rows
from enteron.types import Scores


@dataclass(frozen=True)
class SimulatedStudies:
    """Truth in frames, and scores with the truth by row, in the same order."""

    truths: list[Truth]
    studies: list[LabelledStudy]
    origin: str


def simulated_studies(count: int, seed: int, level: Level = "paper") -> SimulatedStudies:
    """All studies with the scores of one seed and quality."""
    sequences, origin = load_studies(count)
    options = SimulationOptions(level=level)
    studies: list[LabelledStudy] = []
    for index, (truth, scores) in enumerate(sequences):
        values = label_rows(scores, truth)
        drawn = simulate(
            values, scores.axis.step, RATES, np.random.SeedSequence([seed, index]), options
        )
        studies.append(LabelledStudy(Scores(scores.study, scores.axis, drawn), values))
    return SimulatedStudies([truth for truth, _ in sequences], studies, origin)
