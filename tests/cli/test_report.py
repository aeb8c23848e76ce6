"""`enteron report` and `enteron export` as a person meets them."""

import json

import pytest

from enteron.datasets.submission import write_submission
from enteron.types import Annotation, Segment, Unit
from tests.making import label_rows, write_labels
from tests.report.making import edit_json, write_folder, write_frames


@pytest.fixture
def reading(tmp_path):
    return write_folder(tmp_path / "reading")


def official(path, study="s1"):
    segments = (Segment(0, 120, ("stomach",)), Segment(120, 400, ("small intestine",)))
    write_submission(path, [Annotation(study, Unit.FRAME, segments)])
    return path


def test_report_writes_one_page(enteron, reading, tmp_path):
    said = enteron("report", "reading").stdout
    assert "report.html" in said
    assert "Open reading/report.html" in said
    assert "<title>Study s1" in (reading / "report.html").read_text()
    assert not (reading / "pictures").exists()


def test_truth_from_an_official_file_and_from_label_files(enteron, reading, tmp_path):
    official(tmp_path / "truth.json")
    enteron("report", "reading", "--truth", "truth.json")
    first = (reading / "report.html").read_text()
    assert 'id="comparison"' in first
    labels = label_rows((120, ["stomach"]), (280, ["small intestine"]))
    write_labels(tmp_path / "Labels" / "s1.csv", labels)
    enteron("report", "reading", "--truth", "Labels")
    assert (reading / "report.html").read_text() == first


def test_pictures_are_taken_again_from_the_study(enteron, reading, tmp_path):
    write_frames(tmp_path / "frames", range(400))
    enteron("report", "reading", "--study", "frames")
    assert json.loads((reading / "pictures" / "index.json").read_text())["masked"] is True
    assert "data:image/jpeg;base64," in (reading / "report.html").read_text()
    enteron("report", "reading", "--study", "frames", "--device-text")
    assert "Look for names before" in (reading / "report.html").read_text()


def test_the_folder_of_decode_becomes_a_page(enteron, reading, tmp_path):
    (reading / "scores.parquet").rename(tmp_path / "mine.parquet")
    enteron("decode", "mine.parquet", "--out", "decoded")
    refused = enteron("report", "decoded", code=1)
    assert "'decoded' has no scores.parquet; name the file that was decoded" in refused.stderr
    enteron("report", "decoded", "--scores", "mine.parquet")
    page = (tmp_path / "decoded" / "report.html").read_text()
    assert "<title>Study study-" in page  # the file's name may be a patient's
    assert "mine" not in page


@pytest.mark.parametrize(
    ("change", "arguments", "said"),
    [
        (None, ["nothing"], "'nothing' is not a folder; give the folder of a reading."),
        (None, ["."], "is not a reading: it has no events.json"),
        ("damage", ["reading"], "events.json is not JSON"),
        ("mix", ["reading"], "events.json is of study s1, run.json of study s2; the files of two"),
        (None, ["reading", "--truth", "other.json"], "the truth has no study s1, only s9"),
        (None, ["reading", "--truth", "none.json"], "none.json"),
        (None, ["nothing", "--truth", "other.json"], "'nothing' is not a folder"),
        (None, ["reading", "--study", "none"], "there is no 'none'"),
        (None, ["reading", "--scores", "none.csv"], "there is no file none.csv"),
    ],
)
def test_report_refuses(enteron, reading, tmp_path, change, arguments, said):
    official(tmp_path / "other.json", "s9")
    if change == "damage":
        (reading / "events.json").write_text('{"study": ')
    if change == "mix":
        edit_json(reading / "run.json", study="s2")
    done = enteron("report", *arguments, code=1)
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert str(tmp_path) not in done.stderr
    assert not (reading / "report.html").exists()


def test_a_folder_that_cannot_be_written_keeps_its_page(enteron, reading):
    enteron("report", "reading")
    before = (reading / "report.html").read_bytes()
    edit_json(reading / "run.json", rate="fast")
    assert "damaged at 'rate'" in enteron("report", "reading", code=1).stderr
    assert (reading / "report.html").read_bytes() == before


def test_export(enteron, reading):
    said = enteron("export", "reading", "--video", "https://example.org/s1.mp4").stdout
    assert "Wrote 9 events to reading/label-studio.json" in said
    (task,) = json.loads((reading / "label-studio.json").read_text())
    assert task["data"]["video"] == "https://example.org/s1.mp4"
    assert 'frameRate="2"' in (reading / "label-studio.xml").read_text()
    edit_json(reading / "run.json", rate_note="assumed")
    assert "assumes 24 per second; set it with --rate" in enteron("export", "reading").stdout
    assert "frameRate" not in (reading / "label-studio.xml").read_text()
    enteron("export", "reading", "--rate", 4)
    assert 'frameRate="4"' in (reading / "label-studio.xml").read_text()


def test_usage(enteron, reading):
    assert "enteron report" in enteron("report", "--help").stdout.split("Example:")[1]
    assert "enteron export" in enteron("export", "--help").stdout.split("Example:")[1]
    assert "elan" in enteron("export", "reading", "--format", "elan", code=2).stderr
    assert "'nothing' is not a folder" in enteron("export", "nothing", code=1).stderr
