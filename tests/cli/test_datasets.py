"""`enteron check` and `enteron evaluate` on datasets with partial labels, as a person runs them."""

import json

import numpy as np
import polars as pl
import pytest

from enteron.labels import LABELS
from tests.conftest import ROOT
from tests.making import label_rows, write_frames, write_labels


def write_scores(path, frames, **columns) -> None:
    """Scores of one half, except for the given labels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = np.full(len(frames), 0.5)
    cells = {label: columns.get(label.replace(" ", "_"), half) for label in LABELS}
    pl.DataFrame({"frame": frames, **cells}).write_csv(path)


@pytest.fixture
def table(tmp_path):
    """Two studies of ten frames; an ulcer in three of the eight frames that say so."""
    root = tmp_path / "own"
    lines = ["study,frame,ulcer"]
    for study in ("a", "b"):
        write_frames(root / study, range(10), "frame_{:06d}.png")
        lines += [f"{study},{n},{cell}" for n, cell in enumerate("1110000000")]
        lines[-2:] = [f"{study},8,", f"{study},9,"]
    (root / "frames.csv").write_text("\n".join(lines) + "\n")
    (root / "boxes.csv").write_text("study,frame,label,x1,y1,x2,y2\na,0,ulcer,1,1,9,9\n")
    return root


def test_check_of_a_table(enteron, table):
    said = enteron("check", "own").stdout
    assert said.startswith("Layout: table (it has frames.csv).")
    assert "│ ulcer             │       6 │     10 │       4 │                    2 │" in said
    assert "20 frames, 20 label rows, 1 box, no problems." in said
    content = json.loads(enteron("check", "own", "--json").stdout)
    assert (content["layout"], content["reason"]) == ("table", "it has frames.csv")
    (first, _) = content["studies"]
    assert (first["positives"]["ulcer"], first["absent"]["ulcer"], first["boxes"]) == (3, 5, 1)
    assert first["unknown"]["polyp"] == 10
    assert "2 frames say nothing about the 17 labels" in first["notes"]


def test_check_shows_mistakes_and_takes_a_layout(enteron, table):
    (table / "boxes.csv").write_text("study,frame,label,x1,y1,x2,y2\na,0,ulcer,1,1,99,9\n")
    done = enteron("check", "own", code=1)
    assert "lies outside the picture of 64 x 64 pixels" in done.stdout.replace("\n", " ")
    assert "1 problem" in done.stdout
    (table / "frames.csv").write_text("study,frame,ulcer\na,0,2\n")
    done = enteron("check", "own", code=1)
    assert done.stderr == (
        "enteron: frames.csv, line 2: 'ulcer' is '2'; write 1 (present), 0 (absent) or nothing "
        "(unknown).\n"
    )
    forced = enteron("check", "own", "--layout", "galar")
    assert forced.stdout.startswith("Layout: galar (as --layout says).")
    assert "2 studies" in forced.stdout


def test_evaluate_frames(enteron, table, tmp_path):
    """Study a is ranked without a mistake, study b the other way round."""
    rising = np.linspace(0.9, 0.1, 10)
    write_scores(tmp_path / "scores" / "a.csv", range(10), ulcer=rising)
    write_scores(tmp_path / "scores" / "b.csv", range(10), ulcer=1 - rising)
    figures = json.loads(enteron("evaluate", "own", "scores", "--json").stdout)
    ulcer = figures["labels"]["ulcer"]
    assert (ulcer["present"], ulcer["absent"], ulcer["unknown"]) == (6, 10, 4)
    assert figures["videos"]["a"]["ulcer"]["auc"] == 1.0
    assert figures["videos"]["b"]["ulcer"]["auc"] == 0.0
    assert ulcer["auc"]["mean_over_studies"] == 0.5
    assert ulcer["auc"]["mean_interval"] == [0.0, 1.0]
    assert figures["labels"]["polyp"]["unknown"] == 20
    said = enteron("evaluate", "own", "scores").stdout
    assert "0.500 [0.000, 1.000]" in said
    assert "unknown, left out" in said
    one = enteron("evaluate", "own/frames.csv", "scores/a.csv", "--only-predicted", "--json")
    assert json.loads(one.stdout)["studies"] == 1
    refused = enteron("evaluate", "own", "scores/a.csv", code=1)
    assert "lacks 1 of the truth's 2 studies" in refused.stderr


def test_evaluate_frames_of_galar(enteron, tmp_path):
    rows = label_rows((10, ["stomach"]), (10, ["small intestine", "blood"]))
    write_labels(tmp_path / "Labels" / "1.csv", rows, step=5)
    write_scores(tmp_path / "1.csv", 5 * np.arange(20), blood=rows[:, LABELS.index("blood")] / 2)
    done = enteron("evaluate", "Labels", "1.csv", "--frames", "--json")
    figures = json.loads(done.stdout)
    assert figures["labels"]["blood"]["auc"]["pooled"] == 1.0
    assert figures["labels"]["blood"]["unknown"] == 0
    (tmp_path / "empty").mkdir()
    refused = enteron("evaluate", "Labels", "empty", "--frames", code=1)
    assert "the folder 'empty' holds no scores; give a file of scores" in refused.stderr


def test_the_example_of_the_documentation(enteron, tmp_path):
    """The five lines of "Your own frames" are a dataset."""
    page = (ROOT / "docs" / "data.md").read_text()
    section = page.split("## Your own frames")[1]
    table, boxes = (block.split("```")[0] for block in section.split("```csv\n")[1:3])
    assert len(table.splitlines()) == 5
    for study in ("patient-a", "patient-b"):
        write_frames(tmp_path / "own" / study, range(120, 124), size=336)
    (tmp_path / "own" / "frames.csv").write_text(table)
    (tmp_path / "own" / "boxes.csv").write_text(boxes)
    said = enteron("check", "own").stdout
    assert "1 box, no problems." in said


REAL = ROOT.parent / "shared" / "frames"


@pytest.mark.skipif(not REAL.is_dir(), reason="needs ../shared/frames")
def test_check_of_real_frames(enteron):
    """The counts of ../shared/spec/real-frames.md."""
    content = json.loads(enteron("check", REAL / "kvasir-capsule", "--json").stdout)
    studies = content["studies"]
    assert len(studies) == 33
    shown = {
        label: sum(study["positives"][label] for study in studies)
        for label in ("angiectasia", "ulcer", "lymphangioectasis", "blood", "erosion", "erythema")
    }
    assert list(shown.values()) == [719, 709, 518, 424, 346, 150]
    assert sum(study["absent"]["hematin"] for study in studies) == 8555
    bleeding = json.loads(enteron("check", REAL / "wcebleedgen", "--json").stdout)["studies"]
    assert sum(study["positives"]["blood"] for study in bleeding) == 654
    assert sum(study["absent"]["blood"] for study in bleeding) == 654
