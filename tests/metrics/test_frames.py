"""Frame metrics against scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from enteron.errors import EnteronError
from enteron.metrics.frames import frame_metrics


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(2, 80), st.sampled_from([2, 5, 1000]))
def test_equals_scikit_learn(seed, rows, levels):
    """`levels` makes ties: with two levels almost every score is tied with others."""
    rng = np.random.default_rng(seed)
    truth = rng.random((rows, 17)) < rng.random(17)
    scores = rng.integers(0, levels, size=(rows, 17)) / levels
    thresholds = rng.random(17)
    metrics = frame_metrics(truth, scores, thresholds)
    for column in range(17):
        y, s = truth[:, column], scores[:, column]
        predicted = s >= thresholds[column]
        assert metrics.support[column] == y.sum()
        if y.any():
            assert metrics.ap[column] == pytest.approx(sk.average_precision_score(y, s), abs=1e-12)
            assert metrics.recall[column] == pytest.approx(sk.recall_score(y, predicted))
        else:
            assert np.isnan(metrics.ap[column])
            assert np.isnan(metrics.auc[column])
        if y.any() and not y.all():
            assert metrics.auc[column] == pytest.approx(sk.roc_auc_score(y, s), abs=1e-12)
        if predicted.any():
            assert metrics.precision[column] == pytest.approx(sk.precision_score(y, predicted))
        if y.any() or predicted.any():
            assert metrics.f1[column] == pytest.approx(sk.f1_score(y, predicted))


def test_macro_in_both_conventions():
    truth = np.zeros((4, 17), dtype=bool)
    truth[:2, 0] = True  # ranked first: AP 1
    truth[2, 1] = True  # ranked last: AP 1/4
    scores = np.zeros((4, 17))
    scores[:2, 0] = 0.9
    scores[[0, 1, 3], 1] = 0.8
    metrics = frame_metrics(truth, scores)
    assert metrics.macro("ap", "zero") == pytest.approx(1.25 / 17)
    assert metrics.macro("ap", "left out") == pytest.approx(1.25 / 2)
    empty = frame_metrics(np.zeros((4, 17), dtype=bool), scores)
    assert empty.macro("ap", "zero") == 0
    assert np.isnan(empty.macro("ap", "left out"))


def test_the_paper_s_macro_auc_counts_labels_without_positives_as_zero():
    """Its table: 15 AUCs, two labels without positives, macro 0.754. Left out, it is 0.854."""
    auc = [0.947, 0.996, 0.985, 0.970, 0.978, 0.454, 0.638, 0.811, 0.913, 0.737, 0.898, 0.662,
           0.973, 0.957, 0.892]  # fmt: skip
    assert sum(auc) / 17 == pytest.approx(0.754, abs=5e-4)
    assert sum(auc) / 15 == pytest.approx(0.854, abs=5e-4)


def test_refuses_what_it_cannot_score():
    truth = np.zeros((3, 17), dtype=bool)
    scores = np.zeros((3, 17))
    scores[1, 1] = np.nan
    with pytest.raises(EnteronError, match="1 scores are NaN"):
        frame_metrics(truth, scores)
    with pytest.raises(EnteronError, match="do not fit"):
        frame_metrics(truth, np.zeros((4, 17)))
    with pytest.raises(EnteronError, match=r"did you supply \(labels, frames\)\?"):
        frame_metrics(truth.T, np.zeros((17, 3)))
