"""Every reader of files, fed with damaged and hostile content: the answer is always a sentence.

Each reader gets a valid file of its kind, which hypothesis then mutates: bytes are flipped,
deleted, inserted, repeated and cut off; values of JSON are exchanged for others of every type and
size. A reader may accept what comes out, or refuse it with an `EnteronError`. Anything else is a
bug.
"""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from enteron.errors import EnteronError
from enteron.labels import LABELS

UNSHRUNK = settings(
    phases=[Phase.explicit, Phase.generate],  # shrinking would take long: failures are small
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


# ---- mutations of bytes

span = st.tuples(st.floats(0, 1), st.integers(1, 64))
pieces = st.sampled_from(
    [b"\0", b"\xff", b"\xff" * 9, b"\n", b"\r\n", b'"', b",", b"[" * 200, b"{", b"-", b"nan",
     b"1e400", b"9" * 40, b"\xed\xa0\x80", "²".encode(), b"\x00\x00\x00\x01", b"<!--",
     b"\xef\xbb\xbf"]
)  # fmt: skip
byte_operations = st.one_of(
    st.tuples(st.just("flip"), span, st.integers(1, 255)),
    st.tuples(st.just("delete"), span, st.just(0)),
    st.tuples(st.just("repeat"), span, st.integers(1, 3)),
    st.tuples(st.just("insert"), span, pieces | st.binary(min_size=1, max_size=12)),
    st.tuples(st.just("zero"), span, st.just(0)),
    st.tuples(st.just("cut"), span, st.just(0)),
)


def mutate_bytes(content: bytes, operations: list) -> bytes:
    data = bytearray(content)
    for name, (where, length), value in operations:
        start = round(where * len(data))
        stop = min(start + length, len(data))
        if name == "flip" and start < len(data):
            data[start] ^= value
        elif name == "delete":
            del data[start:stop]
        elif name == "repeat":
            data[start:start] = bytes(data[start:stop]) * value
        elif name == "insert":
            data[start:start] = value
        elif name == "zero":
            data[start:stop] = bytes(stop - start)
        elif name == "cut":
            del data[start:]
    return bytes(data)


# ---- mutations of JSON

RAW = {f"@{index}@": text for index, text in enumerate(
    ["NaN", "Infinity", "-Infinity", "1e400", "1" * 5000, "1" + "0" * 30, "[" * 300 + "]" * 300,
     r'"\ud800"', "1e308", "-1e308", "5e-324", str(2**63 - 1), str(-(2**63)), str(2**31), "-0.0",
     "01", "{'a': 1}"]
)}  # fmt: skip
"""Text of JSON that `json.dumps` does not write, by the placeholder that stands for it."""

odd_values = st.sampled_from(
    [None, True, False, 0, 1, -1, 2, 0.5, -0.5, 1.5, 10**6, 10**12, 10**18, "", " ", "a", "0",
     "1e30", "x" * 3000, "\0", "\x1b[31m", "../..", "<b>", "²", "😀", [], {}, [[]], [None],
     {"": None}, [1, 2], ["a"], {"a": 1}, {"1": "x"}, *RAW]
)  # fmt: skip
json_operations = st.tuples(
    st.sampled_from(["replace", "remove", "add", "rename", "repeat"]),
    st.lists(st.integers(0, 30), min_size=1, max_size=7),
    odd_values,
)


def mutate_json(content: bytes, operations: list) -> bytes:
    root = [json.loads(content)]  # a list, so that the whole value can be replaced too
    for name, path, sample in operations:
        # A copy: later operations change it, and the next example has the same sample.
        parent, key, value = root, 0, copy.deepcopy(sample)
        for step in path[:-1]:
            inner = parent[key]
            if not isinstance(inner, dict | list) or not inner:
                break
            keys = list(inner) if isinstance(inner, dict) else range(len(inner))
            parent, key = inner, keys[step % len(keys)]
        if name == "replace":
            parent[key] = value
        elif name == "remove" and parent is not root:
            del parent[key]
        elif name == "add":
            inner = parent[key]
            if isinstance(inner, dict):
                inner["a" if path[-1] % 2 else str(value)[:20]] = value
            elif isinstance(inner, list):
                inner.append(value)
        elif name == "rename" and isinstance(parent, dict):
            parent[f"{key}x"] = parent.pop(key)
        elif name == "repeat" and isinstance(parent[key], list):
            parent[key] = parent[key] * 2
    text = json.dumps(root[0])
    for placeholder, raw in RAW.items():
        text = text.replace(f'"{placeholder}"', raw)
    return text.encode()


# ---- readers


@dataclass(frozen=True)
class Reader:
    """A valid file, and what reads it."""

    name: str  # of the file
    content: Callable[[Path], bytes]  # made in a folder of its own
    read: Callable[[Path], object]
    few: int = 25  # examples in `make test`
    many: int = 1500  # and in `make test-all`

    @property
    def is_json(self) -> bool:
        return self.name.endswith(".json")


def _official(_: Path) -> bytes:
    event = {"start": 3, "end": 9, "label": ["stomach", "blood"]}
    videos = [{"video_id": study, "events": [event, {**event, "start": 1}]} for study in "ab"]
    return json.dumps({"videos": videos}).encode()


def _score(path: Path) -> object:
    from enteron.datasets.submission import parse_events
    from enteron.folders.predictions import read_predictions
    from enteron.metrics.evaluation import evaluate, summarise
    from enteron.types import Unit

    predictions = read_predictions(path, Unit.FRAME)
    truth = parse_events(_official(path).decode(), Unit.FRAME)
    return summarise(evaluate(truth, predictions.annotations))


def _foreign_fields(path: Path) -> object:
    from enteron.datasets.submission import foreign_fields, read_event_text, read_submission

    return read_submission(path), foreign_fields(read_event_text(path))


def _reading(name: str) -> Callable[[Path], bytes]:
    def make(folder: Path) -> bytes:
        from tests.report.making import write_folder

        return (write_folder(folder, pictures=True) / name).read_bytes()

    return make


def _report(path: Path) -> object:
    """The page of a reading in which one file was changed."""
    from enteron.report import write_report

    folder = path.parent.parent if path.parent.name == "pictures" else path.parent
    return write_report(folder)


def _labels(_: Path) -> bytes:
    names = ",".join(["index", "section", "frame", *LABELS])
    rows = [f"{row},Small bowel,{5 * row},0,0,0,1" + ",0" * 13 for row in range(12)]
    return "\n".join([names, *rows, ""]).encode()


def _challenge(_: Path) -> bytes:
    rows = [f"frame_{number:07d}.png" + ";" * 17 for number in range(6)]
    return "\n".join([";".join(["frame_file", *LABELS]), *rows, ""]).encode()


def _metadata(_: Path) -> bytes:
    return (
        b"File Name ,Capsule System , Gender,Age\n1,PillCam SB3,f,61\nrecording_2.mp4,Olympus,,\n"
    )


def _scores(folder: Path) -> bytes:
    from enteron.folders.scores import write_scores
    from tests.report.making import EVENTS, scores_for

    write_scores(folder / "made", scores_for(EVENTS, range(50)))
    return (folder / "made").read_bytes()


def _read_scores(path: Path) -> object:
    from enteron.folders.scores import is_written_by_enteron, read_scores

    return read_scores(path), is_written_by_enteron(path)


def _scores_csv(_: Path) -> bytes:
    rows = [f"{frame},{frame / 2}" + ",0.25" * 17 for frame in range(0, 40, 5)]
    return "\n".join([",".join(["frame", "time", *LABELS]), *rows, ""]).encode()


def _store(folder: Path) -> bytes:
    from enteron.inference.embed import EmbedOptions, embed_study
    from enteron.study import open_study
    from tests.inference.stub import StubEncoder
    from tests.making import write_frames

    study = open_study(write_frames(folder / "7", range(0, 30, 5), size=32))
    embed_study(study, StubEncoder(), folder / "made.npy", EmbedOptions(chunk=4))
    return (folder / "made.npy").read_bytes()


def _open_store(path: Path) -> object:
    from enteron.inference.store import open_embeddings

    return open_embeddings(path)


def _journal(folder: Path) -> bytes:
    """What an interrupted run leaves: the part beside the journal."""
    from enteron.inference import embed
    from enteron.inference.embed import EmbedOptions
    from enteron.study import open_study
    from tests.inference.stub import StubEncoder
    from tests.making import write_frames

    class FailingEncoder(StubEncoder):
        def encode(self, images):
            if self.seen >= 8:
                raise KeyboardInterrupt
            return super().encode(images)

    study = open_study(write_frames(folder / "7", range(0, 60, 5), size=32))
    with pytest.raises(KeyboardInterrupt):
        embed.embed_study(study, FailingEncoder(), folder / "e.npy", EmbedOptions(chunk=4))
    return (folder / "e.npy.journal").read_bytes()


def _resume(path: Path) -> object:
    from enteron.inference.embed import EmbedOptions, embed_study
    from enteron.inference.store import started_key
    from enteron.study import open_study
    from tests.inference.stub import StubEncoder

    store = path.with_suffix("")
    store.unlink(missing_ok=True)  # of the example before
    part = store.with_name("e.npy.part")
    if not part.exists():
        part.write_bytes(b"")
    started_key(store)
    return embed_study(open_study(path.parent / "7"), StubEncoder(), store, EmbedOptions(chunk=4))


def _calibration(_: Path) -> bytes:
    from enteron.calibration import Calibration

    return json.dumps(Calibration().model_dump()).encode()


def _read_calibration(path: Path) -> object:
    from enteron.folders.model import load_calibration

    return load_calibration(path)


def _model_record(folder: Path) -> bytes:
    from enteron.folders.model import save_model
    from enteron.model.network import start_network
    from enteron.model.options import ModelOptions

    save_model(folder / "m", start_network(ModelOptions(backbone="vit-tiny")))
    return (folder / "m" / "model.json").read_bytes()


def _read_record(path: Path) -> object:
    from enteron.folders.model import read_record

    return read_record(path.parent)


def _weights(folder: Path) -> bytes:
    import torch
    from safetensors.torch import save

    return save({"a": torch.zeros(2, 3), "b": torch.ones(4)})


def _torch_weights(folder: Path) -> bytes:
    import torch

    torch.save({"a": torch.zeros(2, 3), "b": torch.ones(4)}, folder / "made")
    return (folder / "made").read_bytes()


def _read_weights(path: Path) -> object:
    import torch

    from enteron.model.weights import read_weights

    return read_weights(path, {"a": torch.zeros(2, 3), "b": torch.ones(4)}, "copy it again")


def _split(folder: Path) -> bytes:
    from enteron.datasets.splits import Split, save_split

    save_split(Split(("1", "2"), ("3",), ("4",), "by hand"), folder / "made")
    return (folder / "made").read_bytes()


def _read_split(path: Path) -> object:
    from enteron.datasets.splits import load_split

    return load_split(path)


def _priors(_: Path) -> bytes:
    from enteron.priors import load_priors
    from enteron.priors.statistics import priors_to_json

    return priors_to_json(load_priors()).encode()


def _read_priors(path: Path) -> object:
    from enteron.priors import load_priors

    return load_priors(path)


def _toml(_: Path) -> bytes:
    from enteron.decoding import preset

    options = preset("transit").model_dump(mode="json", exclude_none=True)
    tables = {name: value for name, value in options.items() if isinstance(value, dict)}
    lines = [f"{name} = {json.dumps(v)}" for name, v in options.items() if name not in tables]
    for table, fields in tables.items():
        lines.append(f"[{table}]")
        lines += [f"{json.dumps(name)} = {json.dumps(v)}" for name, v in fields.items()
                  if not isinstance(v, dict)]  # fmt: skip
    return "\n".join([*lines, ""]).encode()


def _read_toml(path: Path) -> object:
    from enteron.decoding import DecodeOptions
    from enteron.options import load_options

    return load_options(DecodeOptions, path)


def _recipe(_: Path) -> bytes:
    return b'epochs = 3\nseed = 1 # why\n[model]\nbackbone = "lite"\ndropout = 0.1\n'


def _read_recipe(path: Path) -> object:
    from enteron.training.options import recipe

    return recipe("lite", path)


def _study_json(folder: Path) -> bytes:
    from tests.making import write_frames

    write_frames(folder, range(3), size=16)
    return b'{"frames_per_row": 12.5}'


def _open_study(path: Path) -> object:
    from enteron.study import open_study

    study = open_study(path if path.is_file() and path.suffix != ".json" else path.parent)
    with study:
        return [frame.number for frame in study], study.times()


def _picture(suffix: str) -> Callable[[Path], bytes]:
    def make(_: Path) -> bytes:
        import cv2

        from tests.making import picture

        return cv2.imencode(suffix, picture(1234, 48))[1].tobytes()

    return make


def _decode_picture(path: Path) -> object:
    from enteron.study.picture import UnreadablePictureError, decode_picture, read_picture

    try:
        return decode_picture(read_picture(path))
    except UnreadablePictureError as error:
        return str(error)


def _video(suffix: str, codec: str) -> Callable[[Path], bytes]:
    def make(folder: Path) -> bytes:
        from tests.making import write_video

        return write_video(folder / f"made{suffix}", 12, codec, size=32).read_bytes()

    return make


def _manifest(folder: Path) -> bytes:
    from enteron.phantom.dataset import PhantomOptions, _claim
    from enteron.priors import load_priors

    _claim(folder / "made", PhantomOptions(frames=60), load_priors())
    return (folder / "made" / "phantom.json").read_bytes()


def _read_manifest(path: Path) -> object:
    from enteron.phantom.dataset import PhantomOptions, _claim
    from enteron.priors import load_priors

    return _claim(path.parent, PhantomOptions(frames=60), load_priors())


def _read_events(path: Path) -> object:
    from enteron.folders.reading import read_events_file

    return read_events_file(path)


def _read_run(path: Path) -> object:
    from enteron.folders.reading import RunRecord

    return RunRecord.load(path.parent)


def _read_labels(path: Path) -> object:
    from enteron.datasets.label_table import read_label_table, truth_events
    from enteron.types import Unit

    return truth_events(read_label_table(path), Unit.FRAME)


def _read_challenge(path: Path) -> object:
    from enteron.datasets.galar import read_challenge_file

    return read_challenge_file(path)


def _read_metadata(path: Path) -> object:
    from enteron.datasets.galar import natural_key, read_metadata

    return sorted(read_metadata(path), key=natural_key)


READERS = {
    "official events": Reader("p.json", _official, _foreign_fields),
    "events that are scored": Reader("p.json", _official, _score, few=8, many=300),
    "events.json": Reader("events.json", _reading("events.json"), _read_events),
    "run.json": Reader("run.json", _reading("run.json"), _read_run),
    "page of run.json": Reader("run.json", _reading("run.json"), _report, few=8, many=300),
    "page of events.json": Reader("events.json", _reading("events.json"), _report, few=8, many=300),
    "page of scores": Reader(
        "scores.parquet", _reading("scores.parquet"), _report, few=8, many=300
    ),
    "page of pictures": Reader(
        "pictures/index.json", _reading("pictures/index.json"), _report, few=8, many=200
    ),
    "labels": Reader("1.csv", _labels, _read_labels),
    "the challenge's file": Reader("1.csv", _challenge, _read_challenge),
    "metadata.csv": Reader("metadata.csv", _metadata, _read_metadata),
    "scores.parquet": Reader("scores.parquet", _scores, _read_scores, few=60, many=6000),
    "scores as CSV": Reader("s.csv", _scores_csv, _read_scores),
    "store": Reader("e.npy", _store, _open_store),
    "journal": Reader("e.npy.journal", _journal, _resume, few=12, many=400),
    "calibration.json": Reader("c.json", _calibration, _read_calibration),
    "model.json": Reader("model.json", _model_record, _read_record),
    "safetensors": Reader("w.safetensors", _weights, _read_weights),
    "weights of torch": Reader("w.bin", _torch_weights, _read_weights),
    "split.json": Reader("split.json", _split, _read_split),
    "priors.json": Reader("priors.json", _priors, _read_priors),
    "options of decoding": Reader("o.toml", _toml, _read_toml),
    "a recipe": Reader("r.toml", _recipe, _read_recipe),
    "study.json": Reader("study.json", _study_json, _open_study),
    "phantom.json": Reader("phantom.json", _manifest, _read_manifest),
    "PNG": Reader("a.png", _picture(".png"), _decode_picture),
    "JPEG": Reader("a.jpg", _picture(".jpg"), _decode_picture),
    "MP4": Reader("v.mp4", _video(".mp4", "libx264"), _open_study, few=10, many=300),
    "MKV": Reader("v.mkv", _video(".mkv", "libx264"), _open_study, few=10, many=300),
    "AVI": Reader("v.avi", _video(".avi", "mpeg4"), _open_study, few=10, many=300),
}


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    """The valid content of a reader's file, and the folder in which it is read; made once."""
    made: dict[str, tuple[bytes, Path]] = {}

    def content(name: str) -> tuple[bytes, Path]:
        if name not in made:
            folder = tmp_path_factory.mktemp("fuzz")
            made[name] = READERS[name].content(folder), folder / READERS[name].name
        return made[name]

    return content


def require_a_sentence(reader: Reader, path: Path, content: bytes) -> None:
    path.write_bytes(content)
    sentence = ""
    try:
        reader.read(path)
    except EnteronError as error:
        sentence = str(error)
    assert len(sentence) < 1500
    assert str(path.parent) not in sentence


def readers(*, json_only: bool) -> list[str]:
    return [name for name, reader in READERS.items() if reader.is_json or not json_only]


@pytest.mark.parametrize("name", READERS)
def test_the_valid_file_is_read(name, valid):
    content, path = valid(name)
    path.write_bytes(content)
    assert READERS[name].read(path) is not NotImplemented


def fuzz(name: str, valid, examples: int, operations, mutate) -> None:
    reader = READERS[name]
    content, path = valid(name)

    @settings(UNSHRUNK, max_examples=examples)
    @given(st.lists(operations, min_size=1, max_size=4))
    def run(chosen):
        require_a_sentence(reader, path, mutate(content, chosen))

    try:
        run()
    finally:
        path.write_bytes(content)


@pytest.mark.parametrize("name", readers(json_only=False))
def test_damaged_bytes(name, valid):
    fuzz(name, valid, READERS[name].few, byte_operations, mutate_bytes)


@pytest.mark.parametrize("name", readers(json_only=True))
def test_other_values(name, valid):
    fuzz(name, valid, READERS[name].few, json_operations, mutate_json)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", readers(json_only=False))
def test_damaged_bytes_for_long(name, valid):
    fuzz(name, valid, READERS[name].many, byte_operations, mutate_bytes)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", readers(json_only=True))
def test_other_values_for_long(name, valid):
    fuzz(name, valid, READERS[name].many, json_operations, mutate_json)
