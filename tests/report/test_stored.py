"""Reading folders: complete ones are loaded, damaged and mixed ones refused."""

import hashlib
import html
import json
import re
from dataclasses import replace

import polars as pl
import pytest

from enteron.errors import EnteronError
from enteron.folders.identity import ReadingIdentity
from enteron.folders.reading import load_reading
from enteron.folders.scores import write_scores
from enteron.report import write_report
from enteron.types import Unit
from tests.report.making import EVENTS, edit_json, scores_for, write_folder


def test_a_reading_is_loaded_as_it_was_written(tmp_path):
    reading = load_reading(write_folder(tmp_path / "r"))
    assert reading.events == EVENTS
    assert (reading.study, reading.unit, reading.run.preset) == ("s1", Unit.FRAME, "transit")
    assert (reading.scores.values == scores_for(EVENTS).values).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "events.json").unlink(), "'r' is not a reading: it has no events.json"),
        (lambda f: (f / "scores.parquet").unlink(), "'r' has no scores.parquet; name the file"),
        (lambda f: (f / "events.json").write_text("{"), "events.json is not JSON"),
        (lambda f: (f / "events.json").write_text("[]"), "has no study, unit and events"),
        (lambda f: edit_json(f / "events.json", unit="hours"), "has no study, unit and events"),
        (lambda f: edit_json(f / "events.json", events=[{}]), "event 1 of events.json is damaged"),
        (
            lambda f: edit_json(f / "events.json", events=[{"label": "x", "start": 1, "stop": 2}]),
            "events.json, event 1: 'x' is not one of the 17 labels",
        ),
        (
            lambda f: edit_json(
                f / "events.json", events=[{"label": "blood", "start": 5, "stop": 2}]
            ),
            "event 1: event 'blood' .* is not a range",
        ),
        (
            lambda f: edit_json(
                f / "events.json", events=[{"label": "blood", "start": 5, "stop": 9000}]
            ),
            "'blood' at 5 to 9000 lies outside the scores, which go from 0 to 400",
        ),
        (
            lambda f: edit_json(
                f / "events.json",
                events=[{"label": "<script>alert(1)</script>", "start": 1, "stop": 2}],
            ),
            "event 1: '<script>alert.1.</script>' is not one of the 17 labels",
        ),
        (
            lambda f: edit_json(
                f / "events.json",
                events=[{"label": "blood", "start": 1, "stop": 2, "region": "<b>x"}],
            ),
            "event 1: '<b>x' is not a region; use one of 'mouth'",
        ),
        (
            lambda f: (
                pl.read_parquet(f / "scores.parquet")
                .with_columns(time=pl.lit(float("nan")))
                .write_parquet(f / "scores.parquet")
            ),
            "the time of frame 0 is nan",
        ),
        (lambda f: (f / "scores.parquet").write_bytes(b"PAR1"), "scores.parquet cannot be read"),
        (lambda f: (f / "run.json").write_text("nothing"), "run.json is not JSON"),
        (lambda f: (f / "run.json").write_text("3"), "run.json is damaged at 'the whole file'"),
        (lambda f: edit_json(f / "run.json", rate="fast"), "run.json is damaged at 'rate'"),
        (lambda f: edit_json(f / "run.json", rate=-1.0), "run.json is damaged at 'rate'"),
        (lambda f: edit_json(f / "run.json", study="s2"), "is of study s1, run.json of study s2"),
        (
            lambda f: write_scores(f / "scores.parquet", scores_for(EVENTS, study="s3")),
            "scores.parquet holds scores of study s3, events.json events of study s1",
        ),
        (
            lambda f: edit_json(f / "run.json", scored=399),
            "the scores have 400 rows where run.json",
        ),
        (lambda f: edit_json(f / "run.json", rows=399), "the scores have 400 rows where run.json"),
        (
            lambda f: (
                pl.read_parquet(f / "scores.parquet")
                .rename({"frame": "index"})
                .write_parquet(f / "scores.parquet")
            ),
            "scores.parquet counts in 'index', events.json in 'frame'",
        ),
    ],
)
def test_damaged_folders_are_refused(tmp_path, change, message):
    folder = write_folder(tmp_path / "r")
    change(folder)
    with pytest.raises(EnteronError, match=message):
        write_report(folder)
    assert not (folder / "report.html").exists()


def test_scores_may_lie_elsewhere(tmp_path):
    """`enteron decode` leaves them where they were; rows became frames there by a stride."""
    folder = write_folder(tmp_path / "r")
    edit_json(folder / "run.json", stride=1)
    moved = tmp_path / "decoded.csv"
    pl.read_parquet(folder / "scores.parquet").rename({"frame": "index"}).write_csv(moved)
    (folder / "scores.parquet").unlink()
    assert len(load_reading(folder, moved).scores.axis) == 400


def test_every_field_of_the_run_may_be_missing(tmp_path):
    """Except for those that say what the files belong to, and that the reading is whole."""
    folder = write_folder(tmp_path / "r")
    full = json.loads((folder / "run.json").read_text())
    facts = [name for name in full if name not in ("identity", "state")]
    for name in facts:
        (folder / "run.json").write_text(json.dumps({k: v for k, v in full.items() if k != name}))
        write_report(folder)
    for name in facts:
        (folder / "run.json").write_text(json.dumps({**full, name: None}))
        write_report(folder)
    for inner in ("model", "unreadable", "redundant", "runtime"):
        (folder / "run.json").write_text(json.dumps({**full, inner: {}}))
        write_report(folder)
    bare = {name: full[name] for name in ("identity", "state")}
    (folder / "run.json").write_text(json.dumps(bare))
    assert "not recorded" in write_report(folder).read_text()


# ---- files of different readings


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "run.json").unlink(), "is not a whole reading: it has no run.json; run"),
        (
            lambda f: edit_json(f / "run.json", identity=None),
            "'r' was made by an older version of enteron.*; read the study again",
        ),
        (
            lambda f: edit_json(f / "events.json", identity=None),
            "'r' was made by an older version of enteron.*; read the study again",
        ),
        (lambda f: edit_json(f / "events.json", identity=3), "has no study, unit and events"),
        *(
            (
                lambda f, state=state: edit_json(f / "run.json", state=state),
                f"begun and not finished, after the stage '{state}'; run `enteron read` again to",
            )
            for state in ("started", "embedded", "scored", "decoded", "illustrated")
        ),
        (lambda f: edit_json(f / "run.json", state=None), "begun and not finished; run"),
        *(
            (
                lambda f, field=field: edit_identity(f / "run.json", **{field: "other"}),
                f"events.json and run.json are of different readings: they name different {what}",
            )
            for field, what in (
                ("content", "content of the study's files; the files of two readings were mixed"),
                ("model", "models; read or decode the study again"),
                ("calibration", "calibrations"),
                ("decoding", "options of the decoder"),
                ("scores", "scores"),
            )
        ),
        (
            lambda f: write_scores(f / "scores.parquet", lower(scores_for(EVENTS))),
            "scores.parquet and run.json are of different readings: they name different scores",
        ),
        (
            lambda f: write_scores(
                f / "scores.parquet", scores_for(EVENTS), ReadingIdentity(study="s1", model="m")
            ),
            "scores.parquet and run.json are of different readings: they name different models",
        ),
        (
            lambda f: (f / "submission.json").write_text('{"videos": []}'),
            "submission.json in 'r' is not the file that run.json describes",
        ),
        (
            lambda f: (f / "events.csv").write_text("label\n"),
            "events.csv in 'r' is not the file that run.json describes",
        ),
    ],
)
def test_files_of_different_readings_are_refused(tmp_path, change, message):
    folder = write_folder(tmp_path / "r")
    describe_files(folder)
    assert load_reading(folder).study == "s1"
    change(folder)
    with pytest.raises(EnteronError, match=message):
        write_report(folder)
    assert not (folder / "report.html").exists()


def edit_identity(path, **changes):
    content = json.loads(path.read_text())
    edit_json(path, identity={**content["identity"], **changes})


def lower(scores):
    return replace(scores, values=scores.values * 0.5)


def describe_files(folder):
    names = ("events.json", "events.csv", "submission.json")
    hashes = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    edit_json(folder / "run.json", files=hashes)


def test_the_run_that_finishes_a_reading_may_write_its_page(tmp_path):
    folder = write_folder(tmp_path / "r")
    edit_json(folder / "run.json", state="illustrated")
    assert write_report(folder, unfinished=True).exists()


def test_the_page_names_what_it_belongs_to_and_run_json_names_the_page(tmp_path):
    folder = write_folder(tmp_path / "r")
    page = write_report(folder)
    run = json.loads((folder / "run.json").read_text())
    assert run["files"]["report.html"] == hashlib.sha256(page.read_bytes()).hexdigest()
    (content,) = re.findall(r'<meta name="enteron-identity" content="([^"]*)">', page.read_text())
    assert json.loads(html.unescape(content)) == {**run["identity"], "stage": "finished"}
