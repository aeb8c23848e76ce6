"""`enteron review` as a person runs it, and every way in which it refuses."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from enteron.cli import app
from enteron.errors import EnteronError
from enteron.review.store import REVIEWS, ReviewStore
from enteron.review.users import Role, UserFile
from tests.review.making import review, write_reading, write_study


def run(*arguments, **options):
    result = CliRunner().invoke(app, ["review", *map(str, arguments)], **options)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("made")
    reading = write_reading(root / "readings" / "7", write_study(root / "studies"))
    with ReviewStore(root / "readings" / REVIEWS) as store:
        review(store, reading)
    return root


@pytest.fixture
def root(made, tmp_path):
    """A copy of its own, since some commands change it."""
    shutil.copytree(made / "readings", tmp_path / "readings")
    return tmp_path / "readings"


def test_status(made):
    out = run("status", made / "readings").output
    assert "signed, version 1" in out
    assert "anna" in out
    assert "3.4" in out  # minutes: 203.5 s


def test_export_and_labels_that_train_reads(made, tmp_path):
    out = tmp_path / "out"
    result = run(
        "export", made / "readings", "--out", out, "--studies", made / "studies",
        *(part for name in ("json", "csv", "labels", "fhir") for part in ("--format", name)),
    )  # fmt: skip
    assert "Wrote 4 files of 1 study" in result.output
    assert {path.name for path in (out / "7").iterdir()} == {
        "review.json", "reviewed-events.csv", "diagnostic-report.json",
    }  # fmt: skip
    from enteron.datasets.layouts import open_dataset

    dataset = open_dataset(out / "labels")
    labelled = dataset.studies["7"].labelled_frames()
    assert not labelled.labels.is_complete  # unknown stays unknown
    assert len(labelled.frames) > 500
    again = run("export", made / "readings", "--out", out, "--format", "labels")
    assert "put each study beside it" in again.output


def test_export_refuses(made, tmp_path):
    readings = made / "readings"
    with pytest.raises(EnteronError, match="there is no reading of study 8 here"):
        run("export", readings, "--out", tmp_path / "o", "--study", "8")
    with pytest.raises(EnteronError, match="--studies is for the labels"):
        run("export", readings, "--out", tmp_path / "o", "--studies", made / "studies")
    (tmp_path / "empty").mkdir()
    with pytest.raises(EnteronError, match="there are no reviews here"):
        run("export", tmp_path / "empty", "--out", tmp_path / "o")
    with pytest.raises(EnteronError, match="there is no folder 'nothing'"):
        run("status", tmp_path / "nothing")
    write_study(tmp_path / "others", "9")
    with pytest.raises(EnteronError, match="study 7 is not in 'others'"):
        run("export", readings, "--out", tmp_path / "o", "--format", "labels",
            "--studies", tmp_path / "others")  # fmt: skip


def test_verify_and_what_it_says_of_a_forgery(root):
    out = run("verify", root).output
    assert "The record holds: 18 rows, 1 study." in out
    head = out.split("Head: ")[1].strip()
    assert "The record holds" in run("verify", root, "--head", head).output
    import sqlite3

    eve = sqlite3.connect(root / REVIEWS)
    eve.executescript("DROP TRIGGER no_update; UPDATE record SET user = 'eve' WHERE id = 5;")
    eve.close()
    with pytest.raises(EnteronError, match="does not verify: row 5 was changed"):
        run("verify", root)
    with pytest.raises(EnteronError, match="is not the head of a record"):
        run("verify", root, "--head", "abc")


def test_backup_and_restore(root, tmp_path):
    out = run("backup", root, "--out", tmp_path / "copy.sqlite").output
    head = out.split("Head: ")[1].strip()
    restored = tmp_path / "restored"
    restored.mkdir()
    shutil.copy(tmp_path / "copy.sqlite", restored / REVIEWS)
    assert head in run("verify", restored, "--head", head).output
    with pytest.raises(EnteronError, match=r"'copy.sqlite' exists already"):
        run("backup", root, "--out", tmp_path / "copy.sqlite")


def test_remove_asks_first(root):
    assert "Nothing was removed" in run("remove", root, "7", input="n\n").output
    assert "within 30 days" in run("remove", root, "--older-than", "30").output
    assert "Removed 18 actions of 1 study (7)" in run("remove", root, "7", input="y\n").output
    assert "Nobody has reviewed" in run("status", root).output
    assert "18 of them emptied" in run("verify", root).output
    with pytest.raises(EnteronError, match="there is no review of study 7"):
        run("remove", root, "7", "--yes")
    with pytest.raises(EnteronError, match="not clear what is to be removed"):
        run("remove", root)


def test_what_nobody_touched_for_long_is_removed(root):
    from datetime import UTC, datetime, timedelta

    from enteron.folders.reading import load_reading

    reading = load_reading(root / "7")
    run("remove", root, "7", "--yes")
    with ReviewStore(root / REVIEWS, now=lambda: datetime.now(UTC) - timedelta(days=40)) as store:
        review(store, reading)
    assert "within 50 days" in run("remove", root, "--older-than", "50", "--yes").output
    assert "Removed 18 actions" in run("remove", root, "--older-than", "30", "--yes").output
    assert "The record holds" in run("verify", root).output


def test_corrections_from_label_studio(root, tmp_path):
    run("remove", root, "7", "--yes")
    from enteron.folders.label_studio import write_label_studio
    from enteron.folders.reading import load_reading

    reading = load_reading(root / "7")
    write_label_studio(tmp_path, reading.scores, reading.events)
    (task,) = json.loads((tmp_path / "label-studio.json").read_text())
    (prediction,) = task.pop("predictions")
    regions = {r["id"]: r for r in prediction["result"]}
    del regions["event-6"]  # the polyp
    regions["event-8"]["value"]["timelinelabels"] = ["erosion"]
    regions["event-3"]["value"]["ranges"] = [{"start": 121, "end": 125}]
    new = {
        "id": "aB3", "from_name": "events", "to_name": "video", "type": "timelinelabels",
        "value": {"ranges": [{"start": 481, "end": 490}], "timelinelabels": ["blood"]},
    }  # fmt: skip
    task["annotations"] = [{"result": [*regions.values(), new], "was_cancelled": False}]
    file = tmp_path / "project.json"
    file.write_text(json.dumps([task]))
    assert "10 decisions recorded" in run("import", root, file, "--name", "anna").output
    with ReviewStore(root / REVIEWS) as store:
        events = store.state("7").events
    assert events["m6"].decision == "rejected"
    assert events["m8"].label == "erosion"
    assert (events["m3"].start, events["m3"].stop) == (120, 125)
    added = [e for e in events.values() if e.origin == "person"]
    assert [(e.label, e.start, e.stop) for e in added] == [("blood", 480, 490)]
    assert {e.decision for e in events.values()} == {"confirmed", "rejected"}
    assert "0 decisions recorded" in run("import", root, file).output  # the same again


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "holds no annotation"),
        ('[{"data": {}}]', "names no study or has no annotations"),
        (
            '[{"data": {"study": "7"}, "annotations": [{"result": []}, {"result": []}]}]',
            "has 2 ann",
        ),
        ('[{"data": {"study": "8"}, "annotations": [{"result": []}]}]', "no reading of study 8"),
        ("[1]", "names no study"),
        (
            '[{"data": {"study": "7"}, "annotations": [{"result": [{"from_name": "events", "id": 1,'
            ' "value": {"timelinelabels": ["ulcers"], "ranges": []}}]}]}]',
            "did you mean 'ulcer'",
        ),
        (
            '[{"data": {"study": "7"}, "annotations": [{"result": [{"from_name": "events", "id": 1,'
            ' "value": {"timelinelabels": ["ulcer"], "ranges": [{"start": 9, "end": 999}]}}]}]}]',
            "covers pictures 9 to 999; the study has 600",
        ),
    ],
)
def test_corrections_that_are_refused(made, tmp_path, content, message):
    file = tmp_path / "project.json"
    file.write_text(content)
    with pytest.raises(EnteronError, match=message):
        run("import", made / "readings", file)


def test_users(tmp_path):
    file = tmp_path / "users.json"
    out = run("user", "add", file, "anna", "--role", "viewer", input="correct horse\n").output
    assert "anna is a viewer now" in out
    assert UserFile.load(file).authenticate("anna", "correct horse") is Role.VIEWER
    assert run("user", "list", file).output == "anna  viewer\n"
    with pytest.raises(EnteronError, match="the password has 5 characters"):
        run("user", "add", file, "ben", input="short\n")
    run("user", "remove", file, "anna")
    assert UserFile.load(file).users == {}
    with pytest.raises(EnteronError, match="there is no user 'anna'"):
        run("user", "remove", file, "anna")
    assert [path.name for path in tmp_path.iterdir()] == ["users.json"]
