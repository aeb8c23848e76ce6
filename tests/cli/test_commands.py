"""The commands as people use them: output, exit codes, and one sentence for every mistake."""

import json
import os
import subprocess
import sys
import typing
from pathlib import Path

import pytest

from enteron.cli import (
    calibrate,
    check,
    compare,
    decode,
    demo,
    evaluate,
    export,
    main,
    phantom,
    priors,
    read,
    report,
    train,
    tune,
    validate,
)
from enteron.demo import EXAMPLE_FRAMES, EXAMPLE_SEED
from enteron.labels import COLUMN, REGIONS
from enteron.phantom.dataset import PhantomOptions, StudyPlan
from enteron.priors import load_priors
from tests.folders.making import official, write_plain_reading
from tests.making import label_rows, write_frames, write_labels

TRUTH = {
    "videos": [
        {
            "video_id": "1",
            "events": [
                {"start": 0, "end": 9, "label": ["stomach"]},
                {"start": 10, "end": 19, "label": ["small intestine", "blood"]},
            ],
        }
    ]
}


@pytest.fixture
def files(tmp_path):
    def write(name, content):
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / name).write_text(text)
        return name

    return write


def test_help_is_there_for_every_command_with_an_example(enteron):
    listed = enteron("--help").stdout
    for command in ("demo", "check", "evaluate", "validate", "bench"):
        assert command in listed
        assert f"enteron {command}" in enteron(command, "--help").stdout.split("Example:")[1]


def test_usage_errors_exit_with_2(enteron):
    assert "Missing argument" in enteron("evaluate", code=2).stderr
    assert "No such command" in enteron("evalute", code=2).stderr
    assert "Invalid value" in enteron("evaluate", "a", "b", "--rate", "-1", code=2).stderr


def test_version(enteron):
    from enteron import __version__

    assert enteron("--version").stdout.strip() == __version__


@pytest.mark.slow
def test_demo_tells_the_whole_story(enteron, tmp_path):
    said = enteron("demo", "--full", "--quick", "--out", "kept", timeout=600).stdout
    for chapter in ("1. Drawing", "2. Training", "3. Calibrating", "4. Reading NaviCam"):
        assert chapter in said
    for decoder in ("empty file", "gap-merge", "paper", "transit", "challenge", "oracle"):
        assert decoder in said
    assert "times shorter than real ones" in said
    page = said.rsplit("Open ", 1)[1].split(" in a browser", maxsplit=1)[0]
    assert "ukdd_navi_" in (tmp_path / page).read_text()
    assert (tmp_path / "kept" / "model" / "calibration.json").exists()


def test_the_example_is_what_the_demo_shows(command, monkeypatch):
    shown: list[Path] = []
    monkeypatch.setattr(demo, "show_example", shown.append)
    assert command("read", "--example", "--out", "first")[0] == 0
    assert command("read", "--example")[0] == 0
    assert shown == [Path("first"), Path("enteron-example")]


def test_the_example_is_a_study_as_there_are_real_ones():
    options = PhantomOptions(frames=EXAMPLE_FRAMES, seed=EXAMPLE_SEED, rarity=0.3, device="navicam")
    plan = StudyPlan(1, options, load_priors())
    shown = plan.table.values.sum(axis=0)
    assert all(shown[COLUMN[region]] for region in REGIONS)
    assert shown[COLUMN["small intestine"]] > EXAMPLE_FRAMES / 2
    assert 20_000 < EXAMPLE_FRAMES * plan.timeline.frames_per_row < 150_000


def test_the_first_page_needs_nothing_but_the_package(enteron, tmp_path):
    said = enteron("demo", "--out", "first", timeout=600).stdout
    assert "enteron serve first" in said
    assert "learnt regions and landmarks from drawings only" in " ".join(said.split())
    assert "from which the model never learnt any finding" in " ".join(said.split())
    assert "Not looked for: " in said
    assert "first/reading/report.html in a browser" in said
    page = (tmp_path / "first" / "reading" / "report.html").read_text()
    assert "What it knows from drawings only is marked" in page
    assert "Unlike study" not in page  # a drawing, of a capsule that it never saw
    run = json.loads((tmp_path / "first" / "reading" / "run.json").read_text())
    assert run["model"]["default"]
    assert run["likeness"]["nearest"] == "drawings"


def test_read_needs_a_study_or_the_example(enteron):
    said = enteron("read", code=2).stderr
    assert "give a study" in said
    assert "or --example to draw one" in said
    assert "either a study or --example" in enteron("read", "x", "--example", code=2).stderr
    ignored = enteron("read", "--example", "--coarse", code=2)
    assert "--example takes --out only, not --coarse" in ignored.stderr


def test_evaluate_prints_tables_and_json(enteron, files):
    files("t.json", TRUTH)
    said = enteron("evaluate", "t.json", "t.json").stdout
    for part in ("official", "an empty file", "false alarms / study", "small intestine", "unknown"):
        assert part in said
    figures = json.loads(enteron("evaluate", "t.json", "t.json", "--json").stdout)
    assert figures["map"] == {"0.5": 1.0, "0.95": 1.0}
    assert figures["empty"]["0.5"] == pytest.approx(14 / 17)
    assert {"map", "empty", "present", "videos", "labels", "findings", "boundaries"} <= set(figures)
    assert {"recall", "precision", "false_alarms_per_hour"} <= set(figures["findings"])
    assert set(figures["videos"]) == {"1"}
    assert len(figures["labels"]) == 17


def test_evaluate_takes_a_folder_of_labels_in_either_unit(enteron, files, tmp_path):
    rows = label_rows((10, ["stomach"]), (10, ["small intestine", "blood"]))
    write_labels(tmp_path / "Labels" / "1.csv", rows, step=5)
    files("rows.json", TRUTH)
    (video,) = TRUTH["videos"]
    scaled = [{**e, "start": 5 * e["start"], "end": 5 * e["end"] + 4} for e in video["events"]]
    files("frames.json", {"videos": [{"video_id": "1", "events": scaled}]})
    for prediction, unit in (("rows.json", "index"), ("frames.json", "frame")):
        for truth in ("Labels", "."):
            done = enteron("evaluate", truth, prediction, "--unit", unit, "--json")
            assert json.loads(done.stdout)["map"]["0.95"] == 1.0
    mixed = enteron("evaluate", "Labels", "rows.json")
    assert "index or frame?" in mixed.stdout


def test_evaluate_names_a_truth_that_is_a_pipe(enteron, tmp_path):
    os.mkfifo(tmp_path / "t.json")
    done = enteron("evaluate", "t.json", "t.json", code=1)
    assert "t.json cannot be read (it is a pipe, not a regular file)" in done.stderr


@pytest.mark.parametrize(
    ("truth", "prediction", "said"),
    [
        (TRUTH, '{"videos":[]}', "lacks 1 of the truth's 1 studies, the first is 1"),
        (TRUTH, '{"videos":[{"video_id":"1"', "ends in the middle, at line 1"),
        ("", TRUTH, "t.json is empty"),
        ('{"videos":[]}', '{"videos":[]}', "the truth holds no study"),
    ],
)
def test_evaluate_refuses(enteron, files, truth, prediction, said):
    done = enteron("evaluate", files("t.json", truth), files("p.json", prediction), code=1)
    assert said in done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("enteron: ")
    assert done.stderr.count("\n") == 1


def test_evaluate_refuses_files_that_are_not_there(enteron, files, tmp_path):
    files("t.json", TRUTH)
    assert "none.json cannot be read" in enteron("evaluate", "t.json", "none.json", code=1).stderr
    (tmp_path / "empty").mkdir()
    assert "holds no label files" in enteron("evaluate", "empty", "t.json", code=1).stderr
    assert "p.json cannot be read" in enteron("evaluate", "t.json", "p.json", code=1).stderr


EVENTS = [(0, 10, "stomach"), (10, 20, "small intestine"), (10, 20, "blood")]


@pytest.fixture
def readings(tmp_path):
    """Readings of studies 1 and 2, the first with a frame rate."""
    write_plain_reading(tmp_path / "out" / "1", "1", EVENTS, run={"rate": 10.0})
    write_plain_reading(tmp_path / "out" / "2", "2", EVENTS)
    return tmp_path / "out"


def test_evaluate_accepts_readings(enteron, files, readings):
    files("t.json", TRUTH)
    for prediction in ("out/1", "out/1/submission.json", "out/1/events.json"):
        figures = json.loads(enteron("evaluate", "t.json", prediction, "--json").stdout)
        assert figures["map"] == {"0.5": 1.0, "0.95": 1.0}
    files("both.json", official(("1", EVENTS), ("2", EVENTS)))
    figures = json.loads(enteron("evaluate", "both.json", "out", "--json").stdout)
    assert list(figures["videos"]) == ["1", "2"]
    assert figures["map"]["0.95"] == 1.0


def test_evaluate_uses_the_reading_s_frame_rate(enteron, files, readings):
    files("t.json", TRUTH)
    said = enteron("evaluate", "t.json", "out/1").stdout
    assert "0.0 hours at 10 frames/s (from the reading).\n" in said
    findings = json.loads(enteron("evaluate", "t.json", "out/1", "--json").stdout)["findings"]
    assert (findings["rate"], findings["timed_studies"]) == (10.0, 1)
    assert findings["hours"] == pytest.approx(20 / 10 / 3600)
    said = enteron("evaluate", "t.json", "out/1", "--rate", "5").stdout
    assert "at 5 frames/s (as given).\n" in said
    files("2.json", official(("2", EVENTS)))
    said = enteron("evaluate", "2.json", "out/2").stdout
    assert "frame rate is unknown, so there are no rates per hour. Set it with --rate." in said
    findings = json.loads(enteron("evaluate", "2.json", "out/2", "--json").stdout)["findings"]
    assert (findings["hours"], findings["false_alarms_per_hour"]) == (None, None)
    assert findings["false_alarms_per_study"] == 0.0


def test_evaluate_one_study_of_a_truth_with_several(enteron, files, readings):
    files("both.json", official(("1", EVENTS), ("2", EVENTS)))
    refused = enteron("evaluate", "both.json", "out/1", code=1).stderr
    assert refused == (
        "enteron: the prediction lacks 1 of the truth's 2 studies, the first is 2; list every "
        "study, with an empty list of events where nothing was found, or score only the predicted "
        "ones with --only-predicted.\n"
    )
    note = "the prediction has 1 of the truth's 2 studies; the others are left out"
    said = enteron("evaluate", "both.json", "out/1", "--only-predicted").stdout
    assert f"Note: {note}." in said
    figures = json.loads(
        enteron("evaluate", "both.json", "out/1", "--only-predicted", "--json").stdout
    )
    assert list(figures["videos"]) == ["1"]
    assert figures["warnings"] == [note]


def test_evaluate_and_validate_refuse_what_holds_no_prediction(enteron, files, readings, tmp_path):
    files("t.json", TRUTH)
    (tmp_path / "empty").mkdir()
    (tmp_path / "out" / "2" / "submission.json").unlink()
    for command in (["evaluate", "t.json"], ["validate"]):
        done = enteron(*command, "empty", code=1)
        assert "the folder 'empty' holds no reading; give an official JSON, the" in done.stderr
        done = enteron(*command, "out", code=1)
        assert "the reading '2' has no submission.json; it is not finished" in done.stderr
        done = enteron(*command, "out/1/run.json", code=1)
        assert (
            "run.json has no field 'videos' (its fields are 'study', 'state', 'rate')"
            in done.stderr
        )
        assert done.stdout == ""
    done = enteron("evaluate", "out/1/events.json", "t.json", code=1)
    assert "this is events.json of a reading: give submission.json beside it" in done.stderr


def test_validate_accepts_readings(enteron, files, readings):
    assert enteron("validate", "out/1").stdout == "1 is valid: 1 study, 3 events.\n"
    said = enteron("validate", "out/1/events.json").stdout
    assert "events.json is valid: 1 study, 3 events." in said
    assert "this is not the file to send; submission.json of the reading is" in said
    said = enteron("validate", "out").stdout
    assert "out is valid: 2 studies, 6 events." in said
    assert "the challenge takes one file with all studies" in said
    files("out/submission.json", official(("1", EVENTS), ("2", EVENTS)))
    assert enteron("validate", "out").stdout == "out is valid: 2 studies, 6 events.\n"
    write_plain_reading(readings / "1", "1", EVENTS, unit="index")
    done = enteron("validate", "out/1", code=1)
    assert "counts in 'index' where 'frame' is needed; index or frame?" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [("evaluate", "t.json", "p.json"), ("evaluate", "p.json", "t.json"), ("validate", "p.json")],
)
def test_a_file_without_the_right_to_read_it_is_bad_input(
    arguments, files, tmp_path, monkeypatch, capsys
):
    """Exit code 1 and a sentence; typer's own check would print its usage and exit with 2.

    Tests may run as root, who can read anything, so the system's answers are replaced.
    """
    files("t.json", TRUTH)
    files("p.json", TRUTH)
    open_descriptor = os.open

    def refused(path, *options, **named):
        if Path(path).name == "p.json":
            raise PermissionError(13, "Permission denied", str(path))
        return open_descriptor(path, *options, **named)

    monkeypatch.setattr(os, "access", lambda path, *_, **__: Path(path).name != "p.json")
    monkeypatch.setattr(os, "open", refused)
    monkeypatch.setattr(sys, "argv", ["enteron", *arguments])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == (
        "enteron: p.json cannot be read (Permission denied); ask for the right to read the file.\n"
    )


@pytest.mark.parametrize(
    "command",
    [
        calibrate.calibrate, check.check, compare.compare, decode.decode, demo.demo,
        evaluate.evaluate, export.export, phantom.phantom, priors.fit, read.read, report.report,
        train.train, tune.tune, validate.validate,
    ],
)  # fmt: skip
def test_no_path_is_left_to_typer_s_own_check(command):
    hints = typing.get_type_hints(command, include_extras=True).values()
    paths = [hint for hint in hints if "Path" in str(hint)]
    assert paths
    for hint in paths:
        (parameter,) = hint.__metadata__
        assert not parameter.readable
        assert not parameter.exists


def test_validate(enteron, files):
    files("t.json", TRUTH)
    assert "t.json is valid: 1 study, 2 events." in enteron("validate", "t.json").stdout
    assert "is valid" in enteron("validate", "t.json", "--truth", "t.json").stdout
    noted = {
        "videos": [
            {"video_id": "1", "events": [{"start": 1, "end": 1, "label": [], "score": 1}]},
            {"video_id": "2", "events": []},
        ]
    }
    said = enteron("validate", files("n.json", noted)).stdout
    assert "'score' is not part of the format; only the order of events ranks" in said
    assert "1 event has no label and is ignored by the score" in said
    assert "1 study has no events, the first is 2" in said
    done = enteron("validate", "n.json", "--truth", "t.json", code=1)
    assert "has 1 study that the truth does not have, the first is 2" in done.stderr


def test_validate_names_the_first_wrong_event(enteron, files):
    bad = {"videos": [{"video_id": "x", "events": [{"start": 5, "end": 2, "label": ["blood"]}]}]}
    done = enteron("validate", files("bad.json", bad), code=1)
    assert done.stderr.startswith("enteron: study x, event 1: 'start' 5 lies after 'end' 2")
    assert done.stdout == ""


def test_check(enteron, tmp_path):
    rows = label_rows((20, ["stomach"]), (4, ["stomach", "blood"]))
    write_frames(tmp_path / "data" / "Galar_Frames_1_to_10" / "1", range(0, 120, 5))
    write_labels(tmp_path / "data" / "Labels" / "1.csv", rows, step=5)
    said = enteron("check", "data").stdout
    assert "no problems" in said
    assert "100.0 %" in said
    assert "frames 0 to 115 in steps of 5" in said
    write_frames(tmp_path / "data" / "2", range(5))
    write_labels(tmp_path / "data" / "Labels" / "2.csv", rows)
    (tmp_path / "data" / "2" / "frame_000003.PNG").write_bytes(b"")
    done = enteron("check", "data", "--decode", code=1)
    assert "5 of 24 label rows have an image" in " ".join(done.stdout.split())
    assert "1 frame cannot be read" in " ".join(done.stdout.split())
    content = json.loads(enteron("check", "data", "--json", code=1).stdout)
    assert content["problems"] == 1
    assert [report["study"] for report in content["studies"]] == ["1", "2"]
    assert content["studies"][0]["positives"]["blood"] == 4


def test_check_refuses(enteron, tmp_path):
    assert "there is no folder 'none'" in enteron("check", "none", code=1).stderr
    (tmp_path / "empty").mkdir()
    assert "holds no studies" in enteron("check", "empty", code=1).stderr


def test_no_machine_s_path_in_what_is_printed(enteron, tmp_path):
    home = tmp_path / "patient_jane_doe"
    write_frames(home / "7", range(3))
    (home / "Labels").mkdir()
    (home / "Labels" / "7.csv").write_text("nonsense")
    done = enteron("check", home, code=1)
    assert "jane" not in done.stdout + done.stderr
    assert "jane" not in enteron("evaluate", home, home / "p.json", code=1).stderr


def test_bench_lists_and_refuses(enteron):
    assert "metrics" in enteron("bench").stdout
    done = enteron("bench", "metric", code=1)
    assert "there is no benchmark 'metric'; did you mean 'metrics'" in done.stderr


def test_output_into_a_closed_pipe_ends_quietly(tmp_path, files):
    files("t.json", TRUTH)
    command = f"{sys.executable} -m enteron evaluate t.json t.json | head -1"
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert "Traceback" not in done.stderr
