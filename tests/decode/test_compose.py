"""The whole decoder: `paper` against the paper's loops, both kinds of anatomy by hand."""

import numpy as np
import pytest

from enteron.calibration import Calibration, FrameCalibration, unfitted_thresholds
from enteron.decoding import PRESETS, decode, preset
from enteron.decoding.events import edge_confidence
from enteron.decoding.options import (
    CHALLENGE,
    CLINICAL,
    PAPER,
    TRANSIT,
    DecodeOptions,
    FindingOptions,
    LandmarkOptions,
    StateMachineOptions,
)
from enteron.errors import ConfigError, EnteronError
from enteron.labels import COLUMN, FINDINGS, LABELS, REGIONS
from enteron.priors import load_priors
from enteron.types import FrameAxis, Scores
from tests.decode.making import priors_without, scores_of, with_regions
from tests.literal import decoding as literal

PRIORS = load_priors()


def noisy_study(seed: int, rows: int = 4000) -> Scores:
    """Five regions, findings and landmarks with slow noise, so that every step has work to do."""
    rng = np.random.default_rng(seed)
    lengths = rng.multinomial(rows, [0.08, 0.08, 0.24, 0.4, 0.2])
    state = np.repeat(np.arange(5), lengths)
    signal = np.zeros((rows, 17))
    signal[np.arange(rows), state] = 3.0
    for column in range(5, 17):
        for start in rng.integers(0, rows, 6):
            signal[start : start + int(rng.integers(5, 150)), column] = 4.0
    slow = np.repeat(rng.normal(0, 1.2, (rows // 20 + 1, 17)), 20, axis=0)[:rows]
    x = signal - 2 + slow + rng.normal(0, 1, (rows, 17))
    return Scores("x", FrameAxis(np.arange(rows)), (1 / (1 + np.exp(-x))).astype(np.float32))


@pytest.mark.parametrize("seed", range(4))
def test_paper_equals_the_loops(seed):
    scores = noisy_study(seed)
    events = decode(scores, PAPER, PRIORS)
    columns = {label: scores.column(label).tolist() for label in LABELS}
    wanted = literal.decode(columns, unfitted_thresholds(), PRIORS.given_region.shares)
    assert {(e.label, e.start, e.stop) for e in events} == set(wanted)
    assert len(events) == len(wanted) > 20
    #  findings in the order of their persistence
    findings = [(e.label, e.start, e.stop) for e in events if e.label in FINDINGS]
    assert findings == [event for event in wanted if event[0] in FINDINGS]


def spans(scores, options, **others) -> list[tuple[str, int, int]]:
    return [(e.label, e.start, e.stop) for e in decode(scores, options, PRIORS, **others)]


QUICK = PAPER.model_copy(update={"state_machine": StateMachineOptions(window=1, tau=3)})


def test_the_mouth_is_emitted_only_if_it_was_seen():
    #  mouth at 0.9 for six rows, then two rows of stomach before the commit: mean 0.69 >= 0.5
    assert spans(with_regions("mmmmmmssss"), QUICK)[0] == ("mouth", 0, 8)
    #  never seen: the study begins in the stomach, two rows late
    assert spans(with_regions("ssssss"), QUICK) == [("stomach", 2, 6)]
    strict = unfitted_thresholds() | {"mouth": None}
    calibration = Calibration(paper=FrameCalibration(thresholds=strict))
    assert spans(with_regions("mmmmmm"), QUICK, calibration=calibration) == []


@pytest.mark.parametrize("name", ["paper", "transit"])
def test_one_frame_all_on_all_off(name):
    options = PRESETS[name]
    for rows in (1, 30):
        ones, zeros = np.ones((rows, 17)), np.zeros((rows, 17))
        axis = FrameAxis(np.arange(rows))
        for values in (ones, zeros):
            events = decode(Scores("x", axis, values.astype(np.float32)), options, PRIORS)
            assert all(0 <= e.start < e.stop <= rows for e in events)
            if values is zeros:
                assert not [e for e in events if e.label not in REGIONS]


def test_nan_is_refused_naming_frame_and_label():
    values = np.zeros((3, 17), dtype=np.float32)
    values[1, COLUMN["blood"]] = np.nan
    with pytest.raises(EnteronError, match="frame 15: 'blood' has score nan"):
        Scores("x", FrameAxis(np.array([10, 15, 20])), values)


def test_events_count_in_frames_and_a_row_holds_up_to_the_next():
    line = "i" * 60
    blood = np.zeros(60, dtype=np.float32)
    blood[50:] = 0.9  # open at the end
    events = spans(with_regions(line, step=5, blood=blood), QUICK)
    assert events[0] == ("small intestine", 10, 300)
    assert events[1][0] == "blood"
    assert events[1][2] == 300


def test_findings_and_landmarks_know_their_region():
    rows = 400
    blood = np.zeros(rows, dtype=np.float32)
    blood[150:180] = 0.9
    pylorus = np.zeros(rows, dtype=np.float32)
    pylorus[90:100] = 0.95
    scores = with_regions("s" * 100 + "i" * 300, step=100, blood=blood, pylorus=pylorus)
    events = {e.label: e for e in decode(scores, TRANSIT, PRIORS)}
    assert (events["blood"].region, events["pylorus"].region) == ("small intestine", "stomach")
    assert (events["pylorus"].start, events["pylorus"].stop) == (9000, 10000)
    assert (events["stomach"].stop, events["small intestine"].start) == (10000, 10000)
    assert abs(events["blood"].start - 15000) <= 300
    for event in events.values():
        assert event.score is not None
        assert 0 < event.score <= 1
    for name in ("blood", "pylorus"):
        onset, end = events[name].onset, events[name].end
        assert onset is not None
        assert end is not None
        assert 0.3 < onset <= 1  # chance, for 5 of 17 places, is 0.29
        assert 0.3 < end <= 1


def test_landmarks_lie_near_the_regions_they_separate():
    rows = 600
    pylorus = np.zeros(rows, dtype=np.float32)
    pylorus[20:60] = pylorus[380:420] = pylorus[500:540] = 0.95
    scores = with_regions("e" * 200 + "s" * 100 + "c" * 300, pylorus=pylorus)
    #  stomach from row 202 to 302, after it the colon: pylorus may lie in rows 152 to 352
    assert [e for e in spans(scores, QUICK) if e[0] == "pylorus"] == []
    #  further away it may be wanted, but gating attenuates it in esophagus and colon as well
    wide = QUICK.model_copy(update={"landmarks": LandmarkOptions(near=90), "gate": 1.0})
    assert [e for e in spans(scores, wide) if e[0] == "pylorus"] == [("pylorus", 380, 392)]
    #  no change from stomach to intestine, so none to place it at
    assert [e for e in spans(scores, TRANSIT) if e[0] == "pylorus"] == []


def test_a_landmark_without_evidence_is_not_invented():
    scores = with_regions("s" * 100 + "i" * 300, step=100, pylorus=np.full(400, 0.2))
    assert [e for e in spans(scores, TRANSIT) if e[0] == "pylorus"] == []


def test_a_label_without_threshold_is_never_emitted():
    blood = np.full(200, 0.99, dtype=np.float32)
    scores = with_regions("i" * 200, blood=blood)
    assert "blood" in {e.label for e in decode(scores, QUICK, PRIORS)}
    never = Calibration(paper=FrameCalibration(thresholds=unfitted_thresholds() | {"blood": None}))
    assert "blood" not in {e.label for e in decode(scores, QUICK, PRIORS, never)}


def test_thresholded_columns_are_scores():
    blood = np.zeros(200, dtype=np.float32)
    blood[100:130] = 1
    line = "s" * 60 + "i" * 140
    zero_one = (with_regions(line, step=100).values > 0.5).astype(np.float32)
    zero_one[:, COLUMN["blood"]] = blood
    scores = Scores("x", FrameAxis(100 * np.arange(200)), zero_one)
    assert ("stomach", 0, 6000) in spans(scores, TRANSIT)
    assert ("small intestine", 6000, 20000) in spans(scores, TRANSIT)
    (event,) = [e for e in spans(scores, TRANSIT) if e[0] == "blood"]
    assert abs(event[1] - 10000) <= 300
    assert abs(event[2] - 13000) <= 300


def test_presets_that_need_fitting_say_so():
    scores = scores_of(blood=np.ones(5, dtype=np.float32))
    with pytest.raises(ConfigError, match="presence and expected AP"):
        decode(scores, CHALLENGE, PRIORS)
    with pytest.raises(ConfigError, match="budget of false alarms were never fitted"):
        decode(scores, CLINICAL, PRIORS)
    with pytest.raises(ConfigError, match="did you mean 'transit'"):
        preset("transi")


def two_bleedings() -> Scores:
    """A long, weak run of blood, and a short, strong one."""
    blood = np.zeros(300, dtype=np.float32)
    blood[50:150] = 0.6
    blood[200:215] = 0.95
    return with_regions("i" * 300, blood=blood)


def ranked(rank, **options) -> list:
    findings = FindingOptions(rank=rank)
    decoded = decode(two_bleedings(), DecodeOptions(findings=findings, **options), PRIORS)
    return [event for event in decoded if event.label == "blood"]


@pytest.mark.parametrize("anatomy", ["state machine", "semi-Markov"])
def test_the_rank_of_findings_is_an_option_of_its_own(anatomy):
    #  S = 0.6 ln 100 = 2.8 for the long run and 0.95 ln 15 = 2.6 for the short one
    weak, strong = (50, 150), (200, 215)
    by_confidence = ranked("confidence", anatomy=anatomy)
    assert [(e.start, e.stop) for e in by_confidence] == [strong, weak]
    assert all(e.onset is not None and e.end is not None for e in by_confidence)
    by_persistence = ranked("persistence", anatomy=anatomy)
    assert [(e.start, e.stop) for e in by_persistence] == [weak, strong]
    assert all(e.onset is None and e.end is None for e in by_persistence)


def test_presets_name_their_rank():
    assert {name: options.findings.rank for name, options in PRESETS.items()} == {
        "paper": "persistence",
        "gap-merge": "confidence",  # not used: its official file is in time order
        "transit": "confidence",
        "challenge": "confidence",
        "clinical": "confidence",
    }


@pytest.mark.parametrize("option", ["silence", "cut"])
def test_what_needs_confidence_refuses_a_rank_without_it(option):
    findings = FindingOptions(rank="persistence")
    with pytest.raises(ConfigError, match=f"{option} = true needs the confidence of findings"):
        DecodeOptions.model_validate({option: True, "findings": findings})


def test_other_priors_give_other_events():
    #  In the packaged priors the small intestine shows blood; where it never does, 0.9 x 0.3 is
    #  below the threshold.
    blood = np.zeros(200, dtype=np.float32)
    blood[100:140] = 0.9
    scores = with_regions("i" * 200, blood=blood)
    assert "blood" in {e.label for e in decode(scores, TRANSIT, PRIORS)}
    bloodless = priors_without("blood", "small intestine")
    assert "blood" not in {e.label for e in decode(scores, TRANSIT, bloodless)}


def test_the_same_scores_give_the_same_events():
    scores = noisy_study(1)
    for name in ("paper", "transit"):
        assert decode(scores, PRESETS[name], PRIORS) == decode(scores, PRESETS[name], PRIORS)


def test_edges_have_more_confidence_where_evidence_turns_sharply():
    sharp = np.where(np.arange(40) >= 20, 5.0, -5.0)
    blunt = np.where(np.arange(40) >= 20, 0.2, -0.2)
    at = np.array([20])
    assert edge_confidence(sharp, at, 1.0, margin=0)[0] > 0.98
    assert edge_confidence(blunt, at, 1.0, margin=0)[0] < 0.2
    #  the end of an event is where evidence turns against it
    assert edge_confidence(sharp[::-1] * -1, at, 1.0, margin=0)[0] > 0.98
    #  beyond the study's ends there is no place for an edge
    assert edge_confidence(np.zeros(40), np.array([0]), 1.0, margin=0)[0] == pytest.approx(1 / 9)
