"""`enteron decode` as a person meets it."""

import json

import numpy as np
import polars as pl
import pytest

from enteron.calibration import Calibration, FrameCalibration
from enteron.calibration.calibration import unfitted_thresholds
from enteron.folders.model import save_calibration
from enteron.labels import LABELS
from tests.decode.making import with_regions

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
    said = enteron("decode", scores(), "--out", "out", "--study-id", "7").stdout
    assert "Study 7" in said
    assert "no --model" in said
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "events.json", "events.csv", "submission.json", "run.json",
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


def test_rows_are_named_as_rows_unless_a_stride_is_given(enteron, scores, tmp_path):
    name = scores(number="index")
    assert "events count rows" in enteron("decode", name, "--out", "rows").stdout
    assert reading(tmp_path / "rows")["unit"] == "index"
    assert "events count rows" not in enteron("decode", name, "--out", "f", "--stride", 5).stdout
    content = reading(tmp_path / "f")
    assert (content["unit"], content["events"][0]["stop"]) == ("frame", 1500)


def test_a_model_s_calibration_is_used(enteron, scores, tmp_path):
    (tmp_path / "model").mkdir()
    never = FrameCalibration(thresholds=unfitted_thresholds() | {"blood": None})
    save_calibration(Calibration(paper=never), tmp_path / "model" / "calibration.json")
    for model, labels in ((["--model", "model"], set()), ([], {"blood"})):
        enteron("decode", scores(), "--out", "out", "--preset", "paper", *model)
        found = {event["label"] for event in reading(tmp_path / "out")["events"]}
        assert found & {"blood"} == labels
    assert json.loads((tmp_path / "out" / "run.json").read_text())["model"] is None


def test_options_from_a_file(enteron, scores, tmp_path):
    (tmp_path / "mine.toml").write_text('anatomy = "state machine"\n[state_machine]\ntau = 10\n')
    enteron("decode", scores(), "--out", "out", "--config", "mine.toml")
    starts = {e["label"]: e["start"] for e in reading(tmp_path / "out")["events"]}
    assert starts["small intestine"] == 5 * (300 + 9)
    (tmp_path / "bad.toml").write_text("[state_machine]\ntua = 10\n")
    done = enteron("decode", "scores.parquet", "--out", "o", "--config", "bad.toml", code=1)
    assert "[state_machine] tua is not an option; did you mean 'tau'" in done.stderr


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
        ('{"paper": {"temperature": 0}}', "[paper] temperature = 0 cannot be used"),
        ('{"paper": {"bias": {"blood": 1}}}', "'mouth' is missing"),
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
