"""`enteron decode` as a person meets it."""

import json

import numpy as np
import polars as pl
import pytest

from enteron.calibration import Calibration, FrameCalibration, unfitted_thresholds
from enteron.cli.decode import decode as decode_command
from enteron.folders.model import save_calibration
from enteron.folders.scores import write_scores
from enteron.labels import LABELS
from enteron.priors import load_priors, save_priors
from enteron.types import FrameAxis, Scores
from tests.decode.making import priors_without, with_regions

BLOOD = np.where((np.arange(700) >= 400) & (np.arange(700) < 440), 0.95, 0.02)


@pytest.fixture
def scores(tmp_path):
    """Write a study of 700 rows; keywords replace or (with None) drop columns."""

    def write(name="scores.parquet", number="frame", **columns):
        values = with_regions("s" * 300 + "i" * 400, blood=BLOOD).values
        table = {number: 5 * np.arange(700) if number == "frame" else np.arange(700)}
        table |= {label: values[:, column] for column, label in enumerate(LABELS)}
        for key, column in columns.items():
            table[key.replace("_", " ")] = column
        frame = pl.DataFrame({k: v for k, v in table.items() if v is not None})
        path = tmp_path / name
        frame.write_csv(path) if name.endswith(".csv") else frame.write_parquet(path)
        return name

    return write


def reading(folder) -> dict:
    return json.loads((folder / "events.json").read_text())


def test_decode_writes_a_reading(enteron, scores, tmp_path):
    assert "Study 7" in enteron("decode", scores(), "--out", "out", "--study-id", "7").stdout
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "events.json", "events.csv", "suspicious.json", "submission.json", "run.json",
    }  # fmt: skip
    content = reading(tmp_path / "out")
    assert (content["study"], content["unit"]) == ("7", "frame")
    by_label = {event["label"]: event for event in content["events"]}
    assert (by_label["stomach"]["start"], by_label["stomach"]["stop"]) == (0, 1500)
    assert by_label["blood"]["region"] == "small intestine"
    assert by_label["blood"]["times"] is None
    assert set(by_label["blood"]) == {
        "label", "start", "stop", "score", "region", "onset", "end", "times",
    }  # fmt: skip
    lines = (tmp_path / "out" / "events.csv").read_text().splitlines()
    assert lines[0].startswith("label,start,stop,score,region")
    assert len(lines) == 1 + len(content["events"])
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (run["rows"], run["stride"], run["preset"]) == (700, 5, "transit")
    assert {"command", "options", "versions", "timings", "model"} <= set(run)
    assert "is valid" in enteron("validate", "out/submission.json").stdout


def test_csv_and_parquet_agree(enteron, scores, tmp_path):
    for kind in ("parquet", "csv"):
        enteron("decode", scores(f"a.{kind}"), "--out", kind, "--preset", "paper")
    first, second = (reading(tmp_path / kind) for kind in ("parquet", "csv"))
    assert first == second
    assert {event["label"] for event in first["events"]} >= {"small intestine", "blood"}


def test_times_are_kept(enteron, scores, tmp_path):
    enteron("decode", scores(time=0.5 * np.arange(700)), "--out", "out")
    by_label = {event["label"]: event for event in reading(tmp_path / "out")["events"]}
    assert by_label["small intestine"]["times"] == [150.0, 350.0]
    line = (tmp_path / "out" / "events.csv").read_text().splitlines()[2]
    assert line.startswith("small intestine")
    assert line.endswith("150.0,350.0")


def test_the_name_of_a_file_of_scores_reaches_no_file(enteron, scores, tmp_path):
    for options in ([], ["--study-id", "anon"]):
        out = "-".join(["out", *options])
        enteron("decode", scores("Jane_Doe.csv"), "--out", out, *options)
        for path in (tmp_path / out).iterdir():
            assert b"Jane" not in path.read_bytes()
    assert reading(tmp_path / out)["study"] == "anon"
    enteron("report", out, "--scores", "Jane_Doe.csv")
    assert "Jane" not in (tmp_path / out / "report.html").read_text()


def test_a_missing_config_is_named_without_its_folder(enteron, scores, tmp_path):
    config = tmp_path / "Jane_Doe" / "mine.toml"
    done = enteron("decode", scores(), "--out", "out", "--config", config, code=1)
    assert done.stderr.startswith("enteron: mine.toml cannot be read (No such file or directory)")
    assert "Jane" not in done.stderr


def test_times_that_are_no_numbers_are_refused(enteron, scores, tmp_path):
    """They would make events.json invalid JSON: it has no NaN."""
    times = 0.5 * np.arange(700)
    for bad, said in ((np.nan, "the time of frame 45 is nan"), (np.inf, "frame 45 is inf")):
        times[9] = bad
        done = enteron("decode", scores(time=times), "--out", "out", code=1)
        assert said in done.stderr
        assert "leave times out" in done.stderr
        assert not (tmp_path / "out").exists()


def test_rows_are_named_as_rows_unless_a_stride_is_given(enteron, scores, tmp_path):
    name = scores(number="index")
    assert "events count rows" in enteron("decode", name, "--out", "rows").stdout
    assert reading(tmp_path / "rows")["unit"] == "index"
    assert not (tmp_path / "rows" / "submission.json").exists()
    assert "events count rows" not in enteron("decode", name, "--out", "f", "--stride", 5).stdout
    content = reading(tmp_path / "f")
    assert (content["unit"], content["events"][0]["stop"]) == ("frame", 1500)


def test_a_model_s_calibration_is_used(enteron, scores, tmp_path):
    (tmp_path / "model").mkdir()
    never = FrameCalibration(thresholds=unfitted_thresholds() | {"blood": None})
    save_calibration(Calibration(paper=never), tmp_path / "model" / "calibration.json")
    for model, labels in ((["--model", "model"], set()), ([], {"blood"})):
        enteron("decode", scores(), "--out", "out", "--preset", "paper", *model)
        emitted = {event["label"] for event in reading(tmp_path / "out")["events"]}
        assert emitted & {"blood"} == labels
    assert json.loads((tmp_path / "out" / "run.json").read_text())["model"]["hash"] is None


def save_uncalibrated(folder) -> None:
    folder.mkdir()
    save_calibration(Calibration(), folder / "calibration.json")


def test_scores_without_a_model_are_warned_of(enteron, scores, tmp_path):
    save_uncalibrated(tmp_path / "model")
    done = enteron("decode", scores(), "--out", "out")
    assert done.stderr.startswith("Warning: without --model the scores are taken as calibrated")
    assert done.stderr.count("\n") == 1
    assert enteron("decode", scores(), "--out", "out", "--model", "model").stderr == ""


def test_raw_scores_of_enteron_are_named_before_decoding(enteron, tmp_path, monkeypatch, capsys):
    values = with_regions("s" * 300 + "i" * 400, blood=BLOOD).values
    path = tmp_path / "raw.parquet"
    write_scores(path, Scores("7", FrameAxis(5 * np.arange(700)), values))
    done = enteron("decode", "raw.parquet", "--out", "out")
    assert done.stderr.startswith("Warning: raw.parquet holds the raw scores of a model")
    assert "--model MODEL" in done.stderr
    #  The warning is there before decoding starts.
    warned = []

    def failing(*_):
        warned.append(capsys.readouterr().err)
        raise KeyboardInterrupt

    monkeypatch.setattr("enteron.decoding.decode", failing)
    with pytest.raises(KeyboardInterrupt):
        decode_command(path, tmp_path / "out")
    assert "raw scores" in warned[0]


def test_priors_change_the_events(enteron, scores, tmp_path):
    def labels(*arguments) -> set[str]:
        enteron("decode", scores(), "--out", "out", *arguments)
        return {event["label"] for event in reading(tmp_path / "out")["events"]}

    bloodless, packaged = priors_without("blood", "small intestine"), load_priors()
    save_uncalibrated(tmp_path / "model")
    assert "blood" in labels("--model", "model")
    save_priors(bloodless, tmp_path / "mine.json")
    assert "blood" not in labels("--priors", "mine.json")
    #  the priors of a model folder are used with it, unless others are given
    save_priors(bloodless, tmp_path / "model" / "priors.json")
    save_priors(packaged, tmp_path / "packaged.json")
    assert "blood" not in labels("--model", "model")
    assert "blood" not in labels("--model", "model/calibration.json")
    assert "blood" in labels("--model", "model", "--priors", "packaged.json")


def test_priors_that_cannot_be_read(enteron, scores, tmp_path):
    (tmp_path / "damaged.json").write_text("{")
    (tmp_path / "other.json").write_text("{}")
    for name, problem in (
        ("none.json", "priors none.json cannot be read"),
        ("damaged.json", "damaged.json is not JSON"),
        ("other.json", "other.json: "),
    ):
        done = enteron("decode", scores(), "--out", "out", "--priors", name, code=1)
        assert problem in done.stderr
        assert done.stderr.count("\n") == 1
        assert not (tmp_path / "out").exists()


def test_options_from_a_file(enteron, scores, tmp_path):
    (tmp_path / "mine.toml").write_text('anatomy = "state machine"\n[state_machine]\ntau = 10\n')
    enteron("decode", scores(), "--out", "out", "--config", "mine.toml")
    starts = {e["label"]: e["start"] for e in reading(tmp_path / "out")["events"]}
    assert starts["small intestine"] == 5 * (300 + 9)
    (tmp_path / "bad.toml").write_text("[state_machine]\ntua = 10\n")
    done = enteron("decode", "scores.parquet", "--out", "o", "--config", "bad.toml", code=1)
    assert "[state_machine] tua is not an option; did you mean 'tau'" in done.stderr
    (tmp_path / "bad.toml").write_text('cut = true\n[findings]\nrank = "persistence"\n')
    done = enteron("decode", "scores.parquet", "--out", "o", "--config", "bad.toml", code=1)
    assert "cut = true needs the confidence of findings" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"blood": None}, "has no column 'blood'"),
        (
            {"small intestine": None, "small intestin": BLOOD},
            "'small intestine'; did you",
        ),
        ({"polyp": np.where(np.arange(700) == 3, np.nan, 0)}, "frame 15: 'polyp' has score nan"),
        ({"polyp": np.full(700, 55.0)}, "frame 0: 'polyp' has score 55.0"),
        ({"polyp": ["high"] * 700}, "column 'polyp' is not a column of numbers"),
        ({"frame": None}, "has neither a column 'frame' nor 'index'"),
        ({"frame": np.zeros(700)}, "frame numbers do not increase strictly"),
        ({"frame": np.arange(700) + 0.5}, "'frame' is not a whole number in every row"),
    ],
)
def test_decode_refuses_columns(enteron, scores, columns, said):
    done = enteron("decode", scores(**columns), "--out", "out", code=1)
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_decode_refuses_files(enteron, scores, tmp_path):
    (tmp_path / "x.txt").write_text("x")
    (tmp_path / "x.parquet").write_text("x")
    (tmp_path / "empty.csv").write_text("frame," + ",".join(LABELS) + "\n")
    (tmp_path / "model").mkdir()
    for arguments, said in (
        (["none.csv"], "there is no file none.csv"),
        (["x.txt"], "x.txt is neither parquet nor CSV"),
        (["x.parquet"], "x.parquet cannot be read"),
        (["empty.csv"], "empty.csv has no rows"),
        ([scores(), "--preset", "challenge"], "for silence, were never fitted"),
        ([scores(), "--preset", "clinical"], "were never fitted"),
        ([scores(), "--model", "model"], "calibration.json cannot be read"),
    ):
        done = enteron("decode", *arguments, "--out", "out", code=1)
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
        assert str(tmp_path) not in done.stderr


def test_a_calibration_is_checked(enteron, scores, tmp_path):
    (tmp_path / "m").mkdir()
    path = tmp_path / "m" / "calibration.json"
    for text, said in (
        ("{", "calibration.json is not JSON"),
        ("[]", "calibration.json holds a list"),
        ('{"temprature": 1}', "temprature is not an option"),
        ('{"paper": {"temperature": 0}}', "[paper] temperature = 0 is not valid"),
        ('{"paper": {"bias": {"blood": 1}}}', "'mouth' is missing"),
        ('{"paper": {"devices": {"A": 1.2}}}', "temperatures by capsule system"),
    ):
        path.write_text(text)
        done = enteron("decode", scores(), "--out", "out", "--model", "m", code=1)
        assert said in done.stderr
        assert done.stderr.count("\n") == 1


def test_usage(enteron, scores):
    assert "--out" in enteron("decode", scores(), code=2).stderr
    assert "enteron decode" in enteron("decode", "--help").stdout.split("Example:")[1]
    wrong = enteron("decode", scores(), "--out", "o", "--preset", "papers", code=2)
    assert "papers" in wrong.stderr


def test_help_does_not_wait_for_slow_imports(enteron, tmp_path):
    import subprocess
    import sys

    code = (
        "import sys; sys.argv = ['enteron', '--help']\n"
        "from enteron.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "slow = {'scipy', 'polars', 'numba', 'torch'} & set(sys.modules)\n"
        "assert not slow, slow\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_findings_are_weighted_in_the_list(enteron, scores, tmp_path):
    enteron("decode", scores(), "--out", "out", "--weight", "polyp=3", "--weight", "blood=0")
    listed = json.loads((tmp_path / "out" / "suspicious.json").read_text())
    assert listed["weights"] == {"polyp": 3.0, "blood": 0.0}
    assert "blood" not in {frame["label"] for frame in listed["frames"]}
    for text, said in (
        ("polip=3", "'polip' is not a finding; did you mean 'polyp'"),
        ("polyp=x", "'polyp=x' has no weight from 0 to 1000"),
        ("polyp=nan", "'polyp=nan' has no weight"),
        ("polyp", "'polyp' has no weight"),
    ):
        assert said in enteron("decode", scores(), "--out", "out", "--weight", text, code=1).stderr
