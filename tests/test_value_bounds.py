"""Values that no fit gives are refused by name: in calibrations, options, events, scores, JSON."""

import json

import numpy as np
import polars as pl
import pytest

from enteron.calibration import Calibration, EventRule, FrameCalibration
from enteron.decoding import DecodedEvent, DecodeOptions
from enteron.errors import ConfigError, EnteronError
from enteron.files import json_text, read_json_object, write_json
from enteron.folders.identity import ReadingIdentity
from enteron.folders.label_studio import write_label_studio
from enteron.folders.model import load_calibration, save_calibration
from enteron.folders.predictions import read_predictions
from enteron.folders.reading import read_events_file, write_events
from enteron.folders.scores import read_scores
from enteron.labels import LABELS
from enteron.options import load_options
from enteron.types import Event, FrameAxis, Scores, Unit
from tests.conftest import ROOT

NAN, INFINITE = float("nan"), float("inf")


# ---- calibrations


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        *(("likelihood", "temperature", t) for t in (1e308, 0, -1, 0.01, 21, 1e-308)),
        ("paper", "temperature", 1e308),
        ("likelihood", "bias", 51),
        ("likelihood", "thresholds", 0),
        ("likelihood", "thresholds", 1.01),
        (None, "kappa", 0),
        (None, "kappa", 1e308),
        (None, "low", 1.5),
        (None, "budget", 0),
        (None, "budget", 1e9),
        (None, "studies", -1),
        (None, "rows", 10**20),
        (None, "rates", {"blood": 1}),
        (None, "rates", {"bile": 0.5}),
    ],
)
def test_a_calibration_beyond_its_bounds_is_refused_by_name(tmp_path, section, name, value):
    path = tmp_path / "calibration.json"
    save_calibration(Calibration(), path)
    content = json.loads(path.read_text())
    table = content if section is None else content[section]
    if name in ("bias", "thresholds"):
        table[name]["blood"] = value
    else:
        table[name] = value
    path.write_text(json.dumps(content))
    with pytest.raises(
        ConfigError, match=rf"calibration\.json: .*{name}|'bile'|contains the number"
    ) as caught:
        load_calibration(path)
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_no_calibration(tmp_path, text):
    path = tmp_path / "calibration.json"
    path.write_text(f'{{"kappa": {text}}}')
    with pytest.raises(
        ConfigError, match=r"calibration\.json contains (NaN|-?Infinity|the number 1e999)"
    ):
        load_calibration(path)


@pytest.mark.parametrize(
    "change", [{"window": 10**6}, {"window": 0}, {"slope": 1e308}, {"intercept": -1e4}]
)
def test_an_event_rule_has_bounds(change):
    rule = {"threshold": 0.5, "clinical": None, "window": 1, "intercept": 0.0, "slope": 1.0}
    EventRule.model_validate(rule)
    with pytest.raises(ValueError, match=next(iter(change))):
        EventRule.model_validate(rule | change)


def test_the_bounds_hold_what_fits_give():
    """`temperature_by_likelihood` searches 0.2 to 5; biases have a deviation of 5."""
    for temperature in (0.2, 0.5, 5.0):
        FrameCalibration(temperature=temperature, bias=dict.fromkeys(LABELS, 25.0))


# ---- options of decoding


@pytest.mark.parametrize(
    "line",
    [
        "[semi_markov]\nkappa = 1e308",
        "[semi_markov]\nkappa = 0",
        "[semi_markov]\nkappa = nan",
        "[semi_markov]\nclip = inf",
        "[semi_markov]\nclip = 1e308",
        "[semi_markov]\ncells = 1000000000",
        "[semi_markov]\nmargin = 1000000",
        "[semi_markov]\ndense = 1000000",
        "[landmarks]\nnear = 1000000",
        "[findings]\nwindow = 1000000001",
        "[findings]\npersistence = 1e308",
        "[findings]\nlow = 0",
        "[state_machine]\ntau = 0",
        "gate = 2",
    ],
)
def test_options_beyond_their_bounds_are_refused_by_name(tmp_path, line):
    path = tmp_path / "mine.toml"
    path.write_text(line)
    name = line.split("\n")[-1].split(" = ")[0]
    with pytest.raises(ConfigError, match=rf"mine\.toml: .*{name} = .* is not valid"):
        load_options(DecodeOptions, path)


# ---- events


@pytest.mark.parametrize("score", [5, -1, 1.001, -0.001, NAN, INFINITE])
def test_a_confidence_is_a_probability(score):
    for make in (
        lambda: Event(0, 9, "blood", score),
        lambda: DecodedEvent(0, 9, "blood", score),
        lambda: DecodedEvent(0, 9, "blood", 0.5, None, score),
        lambda: DecodedEvent(0, 9, "blood", 0.5, None, None, score),
    ):
        with pytest.raises(EnteronError, match=r"event 'blood' at 0 is .*; give a finite score"):
            make()
    assert Event(0, 9, "blood", 1.0000000000000002).score  # a sum of posteriors, rounded


def events_json(folder, **fields) -> None:
    event = {"label": "blood", "start": 1, "stop": 5, "score": 0.5} | fields
    content = {"study": "s", "unit": "frame", "events": [event]}
    (folder / "events.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"score": 5}, "event 1: the score of event 'blood' at 1 is 5; give a finite score"),
        ({"score": -1}, "event 1: the score of event 'blood' at 1 is -1"),
        ({"onset": 2}, "event 1: the onset of event 'blood' at 1 is 2"),
        ({"end": NAN}, "NaN"),
        ({"start": INFINITE}, "Infinity"),
        ({"start": 1.5}, "event 1: 1.5 is not a frame"),
        ({"stop": True}, "event 1: True is not a frame"),
        ({"stop": 10**20}, "contains the number 100000000000"),
    ],
)
def test_events_of_a_file_are_refused_by_number(tmp_path, fields, message):
    events_json(tmp_path, **fields)
    with pytest.raises(EnteronError, match=message):
        read_events_file(tmp_path / "events.json")
    with pytest.raises(EnteronError, match=message):
        read_predictions(tmp_path / "events.json", Unit.FRAME)


# ---- times


def scores_with(times) -> Scores:
    return Scores("s", FrameAxis(np.arange(4)), np.zeros((4, 17), np.float32), times)


@pytest.mark.parametrize("wrong", [NAN, INFINITE, -INFINITE])
def test_times_that_are_not_finite_never_reach_a_file(tmp_path, wrong):
    with pytest.raises(EnteronError, match="study s: the time of frame 2 is"):
        scores_with(np.array([0, 1, wrong, 3]))
    table = pl.DataFrame({"frame": range(4), "time": [0.0, 1.0, wrong, 3.0]})
    table = table.with_columns(**{label: pl.lit(0.0) for label in LABELS})
    table.write_parquet(tmp_path / "s.parquet")
    with pytest.raises(EnteronError, match="the time of frame 2 is"):
        read_scores(tmp_path / "s.parquet")


# ---- JSON


@pytest.mark.parametrize("wrong", [NAN, INFINITE, -INFINITE])
def test_json_that_would_be_invalid_is_not_written(tmp_path, wrong):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(EnteronError, match="a number that is not finite, which JSON cannot hold"):
        write_json(path, {"a": [wrong]})
    assert json.loads(path.read_text()) == {"a": 1}
    with pytest.raises(EnteronError, match="not finite"):
        json_text(wrong)


def test_files_of_events_are_valid_json(tmp_path):
    """A strict reader takes what is written."""
    events = [DecodedEvent(0, 3, "blood", 0.5, "colon", 0.25, None)]
    scores = scores_with(np.arange(4.0))
    write_events(tmp_path, scores, events, ReadingIdentity(study="s"))
    write_label_studio(tmp_path, scores, events)
    assert read_json_object(tmp_path / "events.json", "decode again")["events"][0]["times"] == [
        0.0,
        3.0,
    ]
    assert json.loads((tmp_path / "label-studio.json").read_text())


def test_every_json_writer_is_strict():
    """One function makes JSON; another call of `json.dumps` must only hash or show a value."""
    allowed = {
        "files.py",  # the function itself
        "model/preprocessing.py",  # hashes
        "inference/graph_cache.py",
        "datasets/splits.py",
        "folders/identity.py",
        "datasets/submission.py",  # quotes a value in a message
        "training/distributed.py",  # frame numbers between processes
        "inference/store.py",  # validated options
    }
    root = ROOT / "src" / "enteron"
    users = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if "json.dump" in path.read_text(encoding="utf-8")
    }
    assert users <= allowed
