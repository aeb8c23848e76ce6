"""Valid JSON files of a model folder, mutated: read, or refused in one sentence, never a crash.

What is read is used too: a calibration and priors that pass their checks decode a small study.
"""

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enteron.calibration import (
    Bin,
    Calibration,
    EventRule,
    FittedFor,
    FrameCalibration,
    Reliability,
    Silence,
)
from enteron.datasets.splits import load_split, save_split, seeded_split
from enteron.decoding import PRESETS, decode
from enteron.errors import EnteronError
from enteron.folders.model import load_calibration, read_record, save_calibration, save_model
from enteron.labels import FINDINGS, LABELS
from enteron.model.network import start_network
from enteron.model.options import ModelOptions
from enteron.priors import load_priors, save_priors
from tests.decode.making import with_regions

FITTED = Calibration(
    studies=4,
    rows=1000,
    fitted_for=FittedFor(origin="scores", priors="0" * 64, study_ids=("1" * 64,)),
    rates={"blood": 0.1, "colon": 0.5},
    likelihood=FrameCalibration(
        temperature=1.3,
        bias=dict.fromkeys(LABELS, -0.5),
        before=Reliability(ece=0.2, bins=(Bin(low=0, high=1, count=9, score=0.5, share=0.3),)),
    ),
    events={
        label: EventRule(threshold=0.4, clinical=0.5, window=3, intercept=-1.0, slope=1.5)
        for label in FINDINGS
    },
    silence={
        label: Silence(presence=0.5, expected_ap=0.5, intercept=0.0, slope=1.0) for label in LABELS
    },
    budget=1.0,
    kappa=0.3,
    low=0.7,
)
BLOOD = np.where((np.arange(60) >= 40) & (np.arange(60) < 50), 0.95, 0.02)
SCORES = with_regions("s" * 30 + "i" * 30, blood=BLOOD)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model folder with every JSON file, each valid."""
    root = tmp_path_factory.mktemp("valid")
    save_model(root / "m", start_network(ModelOptions(backbone="vit-tiny")), split_hash="ab" * 8)
    shutil.copy(root / "m" / "model.json", root / "model.json")
    #  Beside no model.json, which it does not belong to.
    (root / "c").mkdir()
    save_calibration(FITTED, root / "c" / "calibration.json")
    save_split(seeded_split([str(n) for n in range(9)], test=0.2), root / "split.json")
    save_priors(load_priors(), root / "priors.json")
    return root


Key = str | int
ODD_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, -1, 0.5, 5, 10**9, -(10**9), 10**30, 2**63, 1e308, -1e308, 1e-308]),
    st.sampled_from([float("nan"), float("inf"), -float("inf")]),
    st.sampled_from(
        ["", "blood", "hf-hub:someone/model", "../../x", "\udc80", "[red]", "x" * 5000]
    ),
    st.just([]),
    st.just({}),
    st.just([[1]]),
    st.just({"a": {"b": 1}}),
)


def places(content: Any, path: tuple[Key, ...] = ()) -> list[tuple[Key, ...]]:
    """The path of every value in a JSON content."""
    inner: list[tuple[Key, Any]] = []
    if isinstance(content, dict):
        inner = list(content.items())
    elif isinstance(content, list):
        inner = list(enumerate(content))
    return [path, *(p for key, value in inner for p in places(value, (*path, key)))]


def mutated(content: Any, path: tuple[Key, ...], action: str, value: Any) -> Any:
    """A copy with one value replaced, removed, or joined by an unknown one."""
    if not path:
        return value
    content = copy.deepcopy(content)
    parent = content
    for key in path[:-1]:
        parent = parent[key]
    if action == "replace":
        parent[path[-1]] = value
    elif action == "remove":
        del parent[path[-1]]
    elif isinstance(parent, dict):
        parent["surprise"] = value
    else:
        parent.append(value)
    return content


def mutate(data: st.DataObject, file: Path) -> str:
    """The text of a valid file after one to three mutations."""
    content = json.loads(file.read_text())
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(content)))
        action = data.draw(st.sampled_from(["replace", "remove", "add"]))
        content = mutated(content, path, action, data.draw(ODD_VALUES))
    return json.dumps(content)


def check_refusal(error: EnteronError, file: Path) -> None:
    """One sentence without a path and of a length that a terminal shows."""
    text = str(error)
    assert "\n" not in text
    assert str(file.parent) not in text
    assert len(text) < 600
    assert text.isprintable()


@settings(max_examples=200)
@given(st.data())
def test_model_json(folder, data):
    target = folder / "fuzz"
    target.mkdir(exist_ok=True)
    file = target / "model.json"
    file.write_text(mutate(data, folder / "model.json"))
    try:
        record = read_record(target)
    except EnteronError as error:
        check_refusal(error, file)
    else:
        assert record.backbone.trunk == "vit_tiny_patch16_224"
        assert record.backbone.preprocessing.size == 224
        assert record.options.neighbour_step <= 1000


@settings(max_examples=200)
@given(st.data())
def test_calibration_json(folder, data):
    file = folder / "c" / "fuzz.json"
    file.write_text(mutate(data, folder / "c" / "calibration.json"))
    try:
        calibration = load_calibration(file)
    except EnteronError as error:
        check_refusal(error, file)
        return
    for options in PRESETS.values():
        if calibration.events and calibration.silence:
            for event in decode(SCORES, options, None, calibration):
                assert event.score is None or 0 <= event.score <= 1


@settings(max_examples=150)
@given(st.data())
def test_split_json(folder, data):
    file = folder / "fuzz-split.json"
    file.write_text(mutate(data, folder / "split.json"))
    try:
        assert load_split(file) == load_split(folder / "split.json")
    except EnteronError as error:
        check_refusal(error, file)


@settings(max_examples=200)
@given(st.data())
def test_priors_json(folder, data):
    file = folder / "fuzz-priors.json"
    file.write_text(mutate(data, folder / "priors.json"))
    try:
        priors = load_priors(file)
    except EnteronError as error:
        check_refusal(error, file)
        return
    decode(SCORES, PRESETS["transit"], priors, FITTED)


@pytest.mark.parametrize("name", ["model.json", "c/calibration.json", "split.json", "priors.json"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[" * 100_000,
        b'{"a": ' * 100_000,
        b'{"format": %s}' % (b"9" * 5000),
        b'{"format": 1, "format": 1}',
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b'"' + b"x" * 1000,
    ],
    ids=["empty", "bytes", "null", "deep list", "deep table", "long integer", "twice", "nan",
         "overflow", "open string"],
)  # fmt: skip
def test_texts_that_are_no_such_file(tmp_path, name, content):
    file = tmp_path / Path(name).name
    file.write_bytes(content)
    readers = {
        "model.json": lambda: read_record(tmp_path),
        "calibration.json": lambda: load_calibration(file),
        "split.json": lambda: load_split(file),
        "priors.json": lambda: load_priors(file),
    }
    with pytest.raises(EnteronError, match=file.name.replace(".", r"\.")) as caught:
        readers[file.name]()
    assert str(tmp_path) not in str(caught.value)
    assert len(str(caught.value)) < 400
