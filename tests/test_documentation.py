"""The documentation's examples run, and its references resolve."""

import re
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from enteron.folders.model import save_model
from enteron.labels import LABELS
from enteron.model.network import start_network
from enteron.model.options import ModelOptions
from tests.conftest import ROOT
from tests.making import write_frames

DOCS = ROOT / "docs"
EXAMPLES = re.findall(r"```python\n(.*?)```", (DOCS / "api.md").read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api")
    write_frames(folder / "study", range(12))
    save_model(folder / "model", start_network(ModelOptions(backbone="vit-tiny")))
    rng = np.random.default_rng(0)
    columns = {label: rng.uniform(0, 1, 60) for label in LABELS}
    pl.DataFrame({"frame": np.arange(60), **columns}).write_csv(folder / "scores.csv")
    write_frames(folder / "own" / "study", range(4))
    table = "study,frame,ulcer\nstudy,0,1\nstudy,1,0\nstudy,2,\n"
    (folder / "own" / "frames.csv").write_text(table)
    (folder / "frame-scores").mkdir()
    scores = pl.read_csv(folder / "scores.csv").head(4)
    scores.write_csv(folder / "frame-scores" / "study.csv")
    (folder / "truth.json").write_text(
        '{"videos": [{"video_id": "A1", "events": [{"start": 0, "end": 11, "label": ["colon"]}]}]}'
    )
    return folder


def test_the_examples_of_the_api_page_run_in_order(workspace):
    assert len(EXAMPLES) == 7
    for example in EXAMPLES:
        done = subprocess.run(
            [sys.executable, "-c", example], cwd=workspace, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{example}\n{done.stderr}"


def test_every_public_name_is_on_the_api_page():
    import enteron

    page = (DOCS / "api.md").read_text()
    for name in enteron.__all__:
        assert name == "__version__" or f"`{name}" in page or f"enteron.{name}" in page, name


def test_every_decision_in_the_code_resolves():
    decided = {
        int(n) for n in re.findall(r"^\| (\d+) \|", (DOCS / "decisions.md").read_text(), re.M)
    }
    assert decided == set(range(1, 33))
    sources = [*ROOT.glob("src/**/*.py"), *ROOT.glob("src/**/*.toml"), *ROOT.glob("tests/**/*.py")]
    named = {int(n) for path in sources for n in re.findall(r"[Dd]ecision (\d+)", path.read_text())}
    assert named <= decided


LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda p: p.name
)
def test_links_and_paths_of_a_page_resolve(page):
    text = page.read_text()
    for target in LINK.findall(text):
        assert (page.parent / target).exists(), target
    for path in re.findall(r"`((?:src|tests|benchmarks|docs)/[\w/.-]+)`", text):
        assert (ROOT / path).exists(), path
    packages = "|".join(
        p.name for p in (ROOT / "src/enteron").iterdir() if (p / "__init__.py").exists()
    )
    for path in re.findall(rf"`((?:{packages})/[\w/]+\.py)`", text):
        assert (ROOT / "src/enteron" / path).exists(), path


def test_no_page_names_a_path_of_a_machine():
    for page in [ROOT / "README.md", *DOCS.glob("*.md")]:
        assert "/work/" not in page.read_text(), page.name
        assert not re.search(r"/(home|root|Users)/\w", page.read_text()), page.name
