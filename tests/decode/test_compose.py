"""The whole decoder: `paper` against the paper's loops, both kinds of anatomy by hand."""

import numpy as np
import pytest

from enteron.calibration.calibration import Calibration, FrameCalibration, unfitted_thresholds
from enteron.decode import PRESETS, decode, preset
from enteron.decode.events import edge_confidence
from enteron.decode.options import (
    CHALLENGE,
    CLINICAL,
    PAPER,
    TRANSIT,
    DecodeOptions,
    LandmarkOptions,
    StateMachineOptions,
)
from enteron.errors import ConfigError, EnteronError
from enteron.labels import COLUMN, FINDINGS, LABELS, REGIONS
from enteron.priors import load_priors
from enteron.types import FrameAxis, Scores
from tests.decode.making import scores_of, with_regions
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
    mine = [(e.label, e.start, e.stop) for e in events if e.label in FINDINGS]
    assert mine == [event for event in wanted if event[0] in FINDINGS]


def found(scores, options, **others) -> list[tuple[str, int, int]]:
    return [(e.label, e.start, e.stop) for e in decode(scores, options, PRIORS, **others)]


QUICK = PAPER.model_copy(update={"state_machine": StateMachineOptions(window=1, tau=3)})


def test_the_mouth_is_emitted_only_if_it_was_seen():
    #  mouth at 0.9 for six rows, then two rows of stomach before the commit: mean 0.69 >= 0.5
    assert found(with_regions("mmmmmmssss"), QUICK)[0] == ("mouth", 0, 8)
    #  never seen: the study begins in the stomach, two rows late
    assert found(with_regions("ssssss"), QUICK) == [("stomach", 2, 6)]
    strict = unfitted_thresholds() | {"mouth": None}
    calibration = Calibration(paper=FrameCalibration(thresholds=strict))
    assert found(with_regions("mmmmmm"), QUICK, calibration=calibration) == []


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
    events = found(with_regions(line, step=5, blood=blood), QUICK)
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
    assert [e for e in found(scores, QUICK) if e[0] == "pylorus"] == []
    #  further away it may be wanted, but gating attenuates it in esophagus and colon as well
    wide = QUICK.model_copy(update={"landmarks": LandmarkOptions(near=90), "gate": 1.0})
    assert [e for e in found(scores, wide) if e[0] == "pylorus"] == [("pylorus", 380, 392)]
    #  no change from stomach to intestine, so none to place it at
    assert [e for e in found(scores, TRANSIT) if e[0] == "pylorus"] == []


def test_a_landmark_without_evidence_is_not_invented():
    scores = with_regions("s" * 100 + "i" * 300, step=100, pylorus=np.full(400, 0.2))
    assert [e for e in found(scores, TRANSIT) if e[0] == "pylorus"] == []


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
    assert ("stomach", 0, 6000) in found(scores, TRANSIT)
    assert ("small intestine", 6000, 20000) in found(scores, TRANSIT)
    (event,) = [e for e in found(scores, TRANSIT) if e[0] == "blood"]
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


def test_device_temperatures_are_named():
    scores = with_regions("i" * 50)
    options = DecodeOptions(device="NaviCam")
    with pytest.raises(ConfigError, match="no temperature for the device 'NaviCam'"):
        decode(scores, options, PRIORS)


def test_the_same_scores_give_the_same_events():
    scores = noisy_study(1)
    for name in ("paper", "transit"):
        assert decode(scores, PRESETS[name], PRIORS) == decode(scores, PRESETS[name], PRIORS)


def test_edges_are_surer_where_evidence_turns_sharply():
    sharp = np.where(np.arange(40) >= 20, 5.0, -5.0)
    blunt = np.where(np.arange(40) >= 20, 0.2, -0.2)
    at = np.array([20])
    assert edge_confidence(sharp, at, 1.0, margin=0)[0] > 0.98
    assert edge_confidence(blunt, at, 1.0, margin=0)[0] < 0.2
    #  the end of an event is where evidence turns against it
    assert edge_confidence(sharp[::-1] * -1, at, 1.0, margin=0)[0] > 0.98
    #  beyond the study's ends there is no place for an edge
    assert edge_confidence(np.zeros(40), np.array([0]), 1.0, margin=0)[0] == pytest.approx(1 / 9)
