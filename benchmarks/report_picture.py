"""Makes docs/report.jpg: the report of a synthetic study, with scores simulated from its truth.

Nothing is measured here. Frames are drawn as they are needed, which takes about a minute.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from scipy.ndimage import gaussian_filter1d
from scipy.special import expit

from enteron.datasets.label_table import truth_events
from enteron.decoding import PRESETS, decode
from enteron.folders.identity import ReadingIdentity, scores_hash
from enteron.folders.reading import RunRecord, write_events
from enteron.labels import LABELS
from enteron.phantom.dataset import PhantomOptions, StudyPlan
from enteron.priors import load_priors
from enteron.report import write_report
from enteron.report.pictures import choose_pictures, save_pictures
from enteron.study import Frame, Study
from enteron.types import Scores, Unit
from tests.browser import Browser

WIDTH, HEIGHT = 1280, 1000
OUT = Path(__file__).parents[1] / "docs" / "report.jpg"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--frames", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--keep", type=Path, help="keep the reading in this folder")
    arguments = parser.parse_args()
    options = PhantomOptions(
        frames=arguments.frames, seed=arguments.seed, device="navicam", rarity=0.35
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        report = make_reading(folder, StudyPlan(1, options, load_priors()))
        arguments.out.write_bytes(screenshot(report))
    print(f"{arguments.out.name}: {arguments.out.stat().st_size / 1000:.0f} kB")


def make_reading(folder: Path, plan: StudyPlan) -> Path:
    """A reading of a synthetic study, and its report with the truth beside it."""
    table = plan.table
    rng = np.random.default_rng(plan.options.seed)
    noise = gaussian_filter1d(rng.normal(0, 5, table.values.shape), 4, axis=0)
    log_odds = np.where(table.values, 3.4, -4.2) + noise + rng.normal(0, 0.5, noise.shape)
    values = expit(gaussian_filter1d(log_odds, 1.0, axis=0)).astype(np.float32)
    scores = Scores(plan.id, table.axis, values)
    columns = {label: values[:, column] for column, label in enumerate(LABELS)}
    pl.DataFrame({"frame": table.axis.frames, **columns}).write_parquet(folder / "scores.parquet")
    events = decode(scores, PRESETS["transit"])
    identity = ReadingIdentity(study=plan.id, scores=scores_hash(scores))
    write_events(folder, scores, events, identity)
    unreadable = {"count": 0, "frames": [], "reasons": {}}
    RunRecord.parse(
        {
            "study": plan.id,
            "state": "finished",
            "identity": identity,
            "rows": len(table.axis),
            "preset": "transit",
            "unreadable": unreadable,
            "scaling": "A synthetic study, with scores simulated from its truth.",
        }
    ).save(folder)
    save_pictures(FilmStudy(plan), choose_pictures(scores, events), folder)
    return write_report(folder, truth=truth_events(table, Unit.FRAME))


def screenshot(report: Path) -> bytes:
    """The timeline, with the pointer on the most confident finding that has a picture."""
    with Browser(timeout=120) as browser:
        tab = browser.open(report, WIDTH, HEIGHT)
        tab.run("document.getElementById('timeline').scrollIntoView()")
        event = tab.run(
            "[...document.querySelectorAll('#cards .card')].find(card =>"
            " card.querySelector('img') && document.querySelector("
            "`.finding-mark[data-event='${card.dataset.event}']`)).dataset.event"
        )
        box = tab.run(
            f"(b => [b.left + b.width / 2, b.top + b.height / 2])"
            f"(document.querySelector('.mark[data-event=\"{event}\"]').getBoundingClientRect())"
        )
        tab.mouse("mouseMoved", *box)
        tab.settle()
        tab.wait(0.5)
        return tab.screenshot(quality=88)


class FilmStudy(Study):
    """A synthetic study whose frames are drawn on demand."""

    def __init__(self, plan: StudyPlan) -> None:
        super().__init__(plan.id, plan.table.axis, None)
        self._film = plan.film()

    def _stream(self, start: int) -> Iterator[Frame]:
        return (self._fetch(row) for row in range(start, len(self)))

    def _fetch(self, row: int) -> Frame:
        return Frame(int(self.numbers[row]), None, self._film.frame(row))


if __name__ == "__main__":
    main()
