"""Fitting contexts: what is gained on studies left out, and what is left alone."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from enteron.context import GROUPS
from enteron.fitting import context as fitting
from enteron.fitting.context import ContextFit, choose_context
from enteron.fitting.decoder import (
    FitOptions,
    compare_context,
    context_pays,
    fit_decoder,
)
from enteron.fitting.frames import LabelledStudy, with_context
from enteron.labels import COLUMN, FINDINGS, LABELS, REGIONS
from enteron.priors import load_priors
from enteron.types import FrameAxis, Scores

ROWS = 600
Loss = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]


def drawn_study(seed: int, noise: float = 2.0, burst: int = 60) -> LabelledStudy:
    """Regions in order and bursts of two findings, under noise that is new in every frame."""
    rng = np.random.default_rng(seed)
    truth = np.zeros((ROWS, len(LABELS)), np.bool_)
    borders = [0, *np.sort(rng.integers(20, ROWS - 20, len(REGIONS) - 1)), ROWS]
    for column, (start, stop) in enumerate(pairwise(borders)):
        truth[start:stop, column] = True
    for finding in ("blood", "polyp"):
        start = rng.integers(ROWS - burst)
        truth[start : start + burst, COLUMN[finding]] = rng.random(burst) < 0.8
    odds = np.where(truth, 1.0, -1.5) + noise * rng.normal(size=truth.shape)
    axis = FrameAxis(5 * np.arange(ROWS))
    return LabelledStudy(Scores(f"s{seed}", axis, (1 / (1 + np.exp(-odds))).astype("f")), truth)


EVERYTHING = ContextFit(groups=tuple(GROUPS))
STUDIES = [drawn_study(seed) for seed in range(6)]


def fit_weights(group: str, studies: list[LabelledStudy], options: ContextFit) -> tuple[float, ...]:
    parts = [fitting._part(group, study, n, options) for n, study in enumerate(studies)]
    return fitting._fitted(group, parts, options)


def region_accuracy(study: LabelledStudy) -> float:
    best = study.scores.values[:, : len(REGIONS)].argmax(axis=1)
    return float(study.truth[np.arange(ROWS), best].mean())


def test_an_excerpt_says_nothing_of_means_that_reach_beyond_its_runs():
    # Two runs of 40 frames, far from each other; the rest of the recording is missing.
    #   frames  0......39                5000....5039
    frames = np.concatenate([np.arange(40), 5000 + np.arange(40)])
    values = np.full((80, len(LABELS)), 0.5, "f")
    scores = Scores("excerpt", FrameAxis(frames), values)
    truth = np.zeros(values.shape, np.bool_)
    whole = LabelledStudy(scores, truth)
    excerpt = LabelledStudy(scores, truth, recording_frames=40_000)
    scales = (10.0, 30.0, 100.0, 3000.0)
    assert fitting.scales_within(scales, [whole]) == scales
    assert fitting.scales_within(scales, [excerpt, whole]) == (10.0, 30.0)


def test_context_of_excerpts_is_fitted_on_short_scales_only():
    def excerpt(study: LabelledStudy) -> LabelledStudy:
        return replace(study, recording_frames=40_000)

    short = [excerpt(drawn_study(seed)) for seed in range(6)]  # runs of 3,000 frames
    fitted = choose_context(short)
    assert fitted.context is not None
    assert max(fitted.context.scales) <= 3000
    single = [
        replace(s, scores=replace(s.scores, axis=FrameAxis(1000 * np.arange(ROWS)))) for s in short
    ]
    assert choose_context(single).context is None  # every frame stands alone


def test_noisy_scores_gain_on_a_study_that_was_left_out():
    fitted = choose_context(STUDIES, EVERYTHING)
    assert fitted.context is not None
    assert fitted.gains["regions"].with_context > fitted.gains["regions"].without + 0.1
    assert fitted.gains["findings"].with_context > fitted.gains["findings"].without + 0.1
    new = drawn_study(99, noise=3.0)  # noisier than those that it was fitted on
    assert region_accuracy(with_context(new, fitted.context)) > region_accuracy(new) + 0.1


def test_findings_of_whole_recordings_have_fixed_weights_and_excerpts_have_their_own():
    whole = choose_context(STUDIES).context
    assert whole is not None
    assert whole.findings == (0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0)
    assert whole.study == 2.0
    excerpts = choose_context([replace(s, recording_frames=40_000) for s in STUDIES]).context
    assert excerpts is not None
    assert excerpts.study == 0.0
    assert excerpts.findings != whole.findings[: len(excerpts.findings)]
    # One excerpt among them is enough: its highest scores say nothing of its recording.
    mixed = [replace(STUDIES[0], recording_frames=40_000), *STUDIES[1:]]
    assert choose_context(mixed).context not in (None, whole)


def test_fixed_weights_are_left_out_where_frames_lose_by_them():
    """Lesions of one frame each, and a stretch of raised scores without any."""

    def misleading(seed: int) -> LabelledStudy:
        rng = np.random.default_rng(seed)
        truth = STUDIES[0].truth.copy()
        blood = COLUMN["blood"]
        truth[:, blood] = False
        truth[rng.choice(300, 10, replace=False), blood] = True
        odds = rng.normal(scale=0.1, size=truth.shape)
        odds[:, blood] += np.where(truth[:, blood], 2.0, -2.0)
        odds[400:550, blood] = 1.5
        values = (1 / (1 + np.exp(-odds))).astype("f")
        scores = Scores(f"s{seed}", STUDIES[0].scores.axis, values)
        return LabelledStudy(scores, truth)

    fitted = choose_context([misleading(seed) for seed in range(6)])
    assert fitted.context is None
    assert fitted.gains["findings"].with_context < fitted.gains["findings"].without


def test_scores_that_are_right_are_left_alone():
    perfect = [
        LabelledStudy(
            Scores("s", study.scores.axis, np.where(study.truth, 0.99, 0.01).astype("f")),
            study.truth,
        )
        for study in STUDIES
    ]
    fitted = choose_context(perfect, EVERYTHING)
    assert fitted.context is None
    assert fitted.gains["findings"].without == 1.0


def test_a_group_that_nobody_knows_has_no_weights():
    known = np.zeros((ROWS, len(LABELS)), np.bool_)
    known[:, [COLUMN[finding] for finding in FINDINGS]] = True
    partial = [LabelledStudy(s.scores, s.truth & known, known) for s in STUDIES]
    fitted = choose_context(partial, EVERYTHING)
    assert set(fitted.gains) == {"findings"}
    assert fitted.context is not None
    assert not any(fitted.context.regions)
    assert any(fitted.context.findings)


def test_few_studies_fit_nothing():
    fitted = choose_context(STUDIES[: fitting.LEAST_STUDIES - 1])
    assert fitted.context is None
    assert fitted.gains == {}


def test_the_fit_repeats():
    options = ContextFit(seed=3)
    assert fit_weights("findings", STUDIES[:4], options) == fit_weights(
        "findings", STUDIES[:4], options
    )


@pytest.mark.parametrize("group", list(GROUPS))
def test_the_gradients_are_those_of_the_losses(group: str, monkeypatch: pytest.MonkeyPatch):
    """Both fits hand a loss to `_minimised`; here it is compared with finite differences."""
    checked: list[str] = []

    def compare(loss: Loss, weights: int, parameters: int) -> NDArray[np.float64]:
        at = np.random.default_rng(1).random(parameters) * 0.3
        step = 1e-6
        differences = [
            (loss(at + step * unit)[0] - loss(at - step * unit)[0]) / (2 * step)
            for unit in np.eye(parameters)
        ]
        np.testing.assert_allclose(loss(at)[1], differences, atol=2e-5)
        checked.append(group)
        return np.zeros(parameters)

    monkeypatch.setattr(fitting, "_minimised", compare)
    shown = [
        LabelledStudy(s.scores, np.roll(s.truth, 3, axis=1) if group == "landmarks" else s.truth)
        for s in STUDIES[:2]
    ]
    fit_weights(group, shown, ContextFit(fixed=False))
    assert checked == [group]


def test_the_calibration_carries_it_and_the_papers_does_not():
    fitted = fit_decoder(STUDIES, load_priors(), FitOptions(context="frames"))
    assert fitted.uses_context
    assert fitted.paper.context is None
    assert set(fitted.context_gains) == {"findings"}
    plain = fit_decoder(STUDIES, load_priors())
    assert not plain.uses_context
    assert plain.context_gains == {}


def test_rows_beyond_the_limit_keep_their_weight(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fitting, "_MOST_ROWS", 50)
    present = STUDIES[0].truth
    rows, weights = fitting._chosen_rows(present, np.random.default_rng(0))
    assert rows.size == 100
    assert weights.sum() == pytest.approx(ROWS)


def test_context_is_used_only_if_events_of_left_out_studies_gain():
    comparison = compare_context(STUDIES, load_priors(), FitOptions())
    assert comparison is not None
    assert set(comparison) == {"without", "with"}
    better = {name: value + 0.1 for name, value in comparison["without"].items()}
    worse = dict(better, **{"F1 of findings": comparison["without"]["F1 of findings"] - 0.01})
    assert context_pays({"without": comparison["without"], "with": better})
    assert not context_pays({"without": comparison["without"], "with": worse})
    assert not context_pays({"without": better, "with": better})
    assert not context_pays(None)


def test_events_are_not_compared_on_few_studies():
    assert compare_context(STUDIES[:3], load_priors(), FitOptions()) is None
