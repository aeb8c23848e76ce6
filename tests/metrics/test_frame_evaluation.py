"""Frame figures against scikit-learn, with unknown labels left out; intervals by brute force."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from enteron.datasets.dataset import LabelledFrames
from enteron.errors import EnteronError, SubmissionError, UnitError
from enteron.labels import COLUMN, LABELS
from enteron.metrics.evaluation import StudyBootstrap
from enteron.metrics.frame_evaluation import (
    binned_metrics,
    evaluate_frames,
    summarise_frames,
)
from enteron.metrics.frames import frame_metrics, sensitivity_at
from enteron.types import FrameAxis, FrameLabels, Scores, Unit


def reference_sensitivity(truth: np.ndarray, score: np.ndarray, specificity: float) -> float:
    false_share, true_share, _ = roc_curve(truth, score, drop_intermediate=False)
    return float(true_share[false_share <= 1 - specificity + 1e-9].max())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("specificity", [0.5, 0.9, 0.95])
def test_sensitivity_at_a_specificity(seed, specificity):
    rng = np.random.default_rng(seed)
    truth = rng.random(300) < 0.2
    score = np.round(rng.normal(size=300) + truth, 1)  # ties
    expected = reference_sensitivity(truth, score, specificity)
    assert sensitivity_at(truth, score, specificity) == pytest.approx(expected, abs=1e-12)


def test_sensitivity_by_hand():
    #  scores descending   9 8 7 6 5 4 3 2 1 0
    #  truth               1 0 1 0 0 0 0 0 0 0   8 negatives: at .875 one of them may be above
    truth = np.array([1, 0, 1, 0, 0, 0, 0, 0, 0, 0], bool)
    score = np.arange(9, -1, -1.0)
    assert sensitivity_at(truth, score, 0.875) == 1.0
    assert sensitivity_at(truth, score, 0.88) == 0.5
    # 90 % of ten negatives: one may be above, although 1 - 0.9 is a little less than 0.1
    truth, score = np.array([0] + [1] + [0] * 9, bool), np.arange(11, 0, -1.0)
    assert sensitivity_at(truth, score, 0.9) == 1.0
    assert np.isnan(sensitivity_at(np.zeros(3, bool), np.arange(3.0), 0.9))


def study(seed: int, count: int = 80, share: float = 0.6) -> tuple[LabelledFrames, np.ndarray]:
    """Labels of which some are unknown, and scores that follow them."""
    rng = np.random.default_rng(seed)
    known = rng.random((count, len(LABELS))) < share
    present = (rng.random((count, len(LABELS))) < 0.3) & known
    scores = 1 / (1 + np.exp(-(rng.normal(size=present.shape) + 1.5 * present - 0.5)))
    frames = LabelledFrames(5 * np.arange(count), FrameLabels(present, known))
    return frames, scores.astype(np.float32)


def several(count: int = 4, **changes):
    made = {f"s{n}": study(n, **changes) for n in range(count)}
    truth = {name: labelled for name, (labelled, _) in made.items()}
    scores = {
        name: Scores(name, FrameAxis(labelled.frames), values)
        for name, (labelled, values) in made.items()
    }
    return truth, scores


def test_figures_against_scikit_learn():
    truth, scores = several()
    evaluation = evaluate_frames(truth, scores, resamples=50)
    assert evaluation.frames == 320
    for column, label in enumerate(LABELS):
        row = evaluation.labels[label]
        pooled_truth, pooled_scores, means = [], [], []
        for name in truth:
            known = truth[name].labels.known[:, column]
            y = truth[name].labels.present[known, column]
            p = scores[name].values[known, column]
            pooled_truth.append(y)
            pooled_scores.append(p)
            expected = (
                roc_auc_score(y, p), average_precision_score(y, p), reference_sensitivity(y, p, 0.9)
            )  # fmt: skip
            means.append(expected)
            assert [row.by_study[name][n] for n in ("auc", "ap", "sensitivity")] == pytest.approx(
                list(expected)
            )
        y, p = np.concatenate(pooled_truth), np.concatenate(pooled_scores)
        figures = row.figures
        assert figures["auc"].pooled == pytest.approx(roc_auc_score(y, p))
        assert figures["ap"].pooled == pytest.approx(average_precision_score(y, p))
        assert figures["sensitivity"].pooled == pytest.approx(reference_sensitivity(y, p, 0.9))
        for position, name in enumerate(("auc", "ap", "sensitivity")):
            assert figures[name].mean == pytest.approx(np.mean([m[position] for m in means]))
        assert (row.present, row.absent, row.unknown) == (y.sum(), (~y).sum(), 320 - y.size)
    macro = np.mean([row.figures["auc"].mean for row in evaluation.labels.values()])  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert evaluation.macro["auc"].mean == pytest.approx(macro)


def test_frame_metrics_leave_unknown_labels_out():
    labelled, scores = study(3, count=200)
    metrics = frame_metrics(labelled.labels, scores, 0.4)
    for column in range(len(LABELS)):
        known = labelled.labels.known[:, column]
        y, p = labelled.labels.present[known, column], scores[known, column]
        assert metrics.auc[column] == pytest.approx(roc_auc_score(y, p))
        assert metrics.ap[column] == pytest.approx(average_precision_score(y, p))
        assert metrics.precision[column] == pytest.approx(y[p >= 0.4].mean())
        assert metrics.recall[column] == pytest.approx((p[y] >= 0.4).mean())
        assert (metrics.support[column], metrics.unknown[column]) == (y.sum(), (~known).sum())


def test_intervals_of_pooled_figures_by_brute_force():
    """The same resamples of studies, each computed by scikit-learn on its frames."""
    truth, scores = several(5)
    evaluation = evaluate_frames(truth, scores, resamples=60, seed=3)
    column, names = COLUMN["ulcer"], list(truth)
    drawn = np.random.default_rng(3).integers(5, size=(60, 5))
    values = {"auc": [], "ap": [], "sensitivity": []}
    for resample in drawn:
        parts = [names[index] for index in resample]
        known = [truth[name].labels.known[:, column] for name in parts]
        y = np.concatenate([truth[n].labels.present[k, column] for n, k in zip(parts, known)])  # noqa: B905
        p = np.concatenate([scores[n].values[k, column] for n, k in zip(parts, known)])  # noqa: B905
        values["auc"].append(roc_auc_score(y, p))
        values["ap"].append(average_precision_score(y, p))
        values["sensitivity"].append(reference_sensitivity(y, p, 0.9))
    for name, found in values.items():
        expected = np.quantile(found, (0.025, 0.975))
        interval = evaluation.labels["ulcer"].figures[name].pooled_interval  # pyright: ignore[reportArgumentType]
        np.testing.assert_allclose(interval, expected, rtol=1e-10)  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_bins_of_many_scores_are_fine_enough():
    rng = np.random.default_rng(0)
    y = rng.random(20_000) < 0.1
    p = rng.normal(size=y.size) + y
    edges = np.unique(np.quantile(p, np.linspace(0, 1, 1000), method="lower"))
    cells = np.searchsorted(edges, p, side="right") - 1
    counts = [np.bincount(cells[kind], minlength=edges.size)[::-1] for kind in (~y, y)]
    metrics = binned_metrics(counts[0][None].astype(float), counts[1][None].astype(float), 0.9)
    assert metrics["auc"][0] == pytest.approx(roc_auc_score(y, p), abs=1e-3)
    assert metrics["ap"][0] == pytest.approx(average_precision_score(y, p), abs=3e-3)
    assert metrics["sensitivity"][0] == pytest.approx(reference_sensitivity(y, p, 0.9), abs=5e-3)


def test_studies_of_one_kind_are_pooled_and_not_averaged():
    truth, scores = several(2)
    only = {}
    for name, shows in (("s0", True), ("s1", False)):
        known = np.ones((80, 17), bool)
        only[name] = LabelledFrames(truth[name].frames, FrameLabels(known & shows, known))
    row = evaluate_frames(only, scores, resamples=20).labels["ulcer"]
    assert (row.studies, row.compared) == (1, 0)
    assert row.figures["auc"].pooled is not None
    assert row.figures["auc"].mean is None
    assert row.figures["auc"].mean_interval is None
    assert row.figures["auc"].pooled_interval is None  # one study shows it


def test_a_figure_of_one_study_has_no_interval():
    truth, scores = several(3)
    for name in ("s1", "s2"):
        labels = truth[name].labels
        known = labels.known.copy()
        known[:, COLUMN["ulcer"]] = False
        truth[name] = LabelledFrames(truth[name].frames, FrameLabels(labels.present & known, known))
    evaluation = evaluate_frames(truth, scores, resamples=20)
    figure = evaluation.labels["ulcer"].figures["auc"]
    assert figure.mean is not None
    assert (figure.mean_interval, figure.pooled_interval) == (None, None)
    assert evaluation.labels["polyp"].figures["auc"].mean_interval is not None
    assert evaluation.macro["auc"].mean_interval is None


def test_nothing_known_is_no_figure():
    truth, scores = several(2, share=0.0)
    figures = summarise_frames(evaluate_frames(truth, scores, resamples=20))
    assert figures["labels"]["ulcer"]["unknown"] == 160
    assert figures["labels"]["ulcer"]["auc"] == {
        "pooled": None, "pooled_interval": None, "mean_over_studies": None, "mean_interval": None
    }  # fmt: skip
    assert figures["macro"]["auc"]["pooled"] is None


def test_frames_without_scores_are_counted_and_half_are_refused():
    truth, scores = several(2)
    values = scores["s0"].values
    scores["s0"] = Scores("s0", FrameAxis(truth["s0"].frames[:70]), values[:70])
    assert evaluate_frames(truth, scores, resamples=20).unscored == 10
    scores["s0"] = Scores("s0", FrameAxis(np.arange(80)), values)
    with pytest.raises(EnteronError, match="study s0: 16 of 80 labelled frames have scores; index"):
        evaluate_frames(truth, scores)
    scores["s0"] = Scores("s0", FrameAxis(np.arange(80), Unit.INDEX), values)
    with pytest.raises(UnitError, match="the scores of study s0 count in 'index'"):
        evaluate_frames(truth, scores)


def test_studies_must_be_the_same_unless_asked():
    truth, scores = several(3)
    del scores["s2"]
    with pytest.raises(
        SubmissionError, match=r"lacks 1 of the truth's 3 studies.*--only-predicted"
    ):
        evaluate_frames(truth, scores)
    assert evaluate_frames(truth, scores, only_predicted=True, resamples=20).studies == ("s0", "s1")
    with pytest.raises(EnteronError, match="a specificity of 1 cannot be kept; give a share"):
        evaluate_frames(truth, scores, specificity=1.0)


def test_an_interval_of_any_statistic():
    """Of the mean it is what `mean` gives."""
    values = np.array([0.2, 0.9, np.nan, 0.4, 0.7])
    bootstrap = StudyBootstrap(5, 200, seed=1)
    defined = ~np.isnan(values)

    def mean(times_drawn: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return (times_drawn @ np.nan_to_num(values)) / (times_drawn @ defined)

    assert bootstrap.interval(mean) == pytest.approx(bootstrap.mean(values))
    assert StudyBootstrap(1, 200).interval(mean) is None
