"""Positives and negatives by log-odds: all that fitting needs to know of millions of rows."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from enteron.calibration.labelled import Labelled
from enteron.calibration.logits import logit

EDGE = 14.0  # log-odds of EDGE in `logits` are 13.8
WIDTH = 0.01
BINS = int(2 * EDGE / WIDTH)
CENTRES = np.linspace(-EDGE, EDGE, BINS, endpoint=False) + WIDTH / 2


def count_log_odds(studies: Sequence[Labelled]) -> NDArray[np.int64]:
    """(17, 2, bins): rows without and with each label, by log-odds in steps of 0.01."""
    labels = studies[0].truth.shape[1]
    counts = np.zeros((labels, 2, BINS), dtype=np.int64)
    for study in studies:
        place = ((logit(study.scores.values) + np.float32(EDGE)) / np.float32(WIDTH)).astype(int)
        for column in range(labels):
            both = place[:, column] + BINS * study.truth[:, column]
            counts[column] += np.bincount(both, minlength=2 * BINS).reshape(2, BINS)
    return counts
