"""A catalogue of 10,000 made-up studies: status, a query, and the page.

Commands are timed as a person would run them, as processes of their own; the page is opened in
Chromium where that is installed.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks._timing import timed
from enteron.fleet.catalogue import CATALOGUE, CATALOGUE_EVENTS, refresh_catalogue
from enteron.fleet.page import write_fleet_page
from enteron.labels import FINDINGS, LABELS
from tests.browser import Browser, chromium

QUERY = "SELECT study, angiectasia, frames WHERE angiectasia > 0.8 AND complete"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, help="keep the readings in this folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        out = arguments.keep or Path(temporary) / "readings"
        if not out.exists():
            write_readings(out, arguments.studies)
        measure(out)


def write_readings(out: Path, count: int) -> None:
    """Reading folders with the files that a catalogue is made of."""
    rng = random.Random(0)
    for number in range(count):
        write_reading(out / f"study-{number:08x}", rng)


def write_reading(folder: Path, rng: random.Random) -> None:
    folder.mkdir(parents=True)
    study, frames = folder.name, rng.randint(20_000, 90_000)
    borders = [0, rng.randint(20, 200)]
    borders += [borders[1] + rng.randint(5, 60), frames // 10 + rng.randint(0, 5000)]
    colon = rng.random() < 0.85
    borders += [frames - rng.randint(100, 15_000) if colon else frames]
    ends = [*borders[1:], frames]
    events = [
        event(label, start, stop, rng.uniform(0.7, 1.0))
        for label, start, stop in zip(LABELS[:5], borders, ends, strict=True)
        if stop > start
    ]
    for finding in FINDINGS:
        if rng.random() < 0.25:
            for _ in range(rng.randint(1, 12)):
                start = rng.randint(borders[3], frames - 200)
                events.append(event(finding, start, start + rng.randint(1, 150), rng.random()))
    device = rng.choice(["olympus", "pillcam", "navicam"])
    run = {
        "study": study, "state": "finished", "rows": frames, "rate": 2.0,
        "unreadable": {"count": rng.randint(0, 30)}, "settings": {"device": device},
        "model": {"hash": "0123456789abcdef"}, "timings": {"embed": frames / 60},
        "versions": {"enteron": "0.2.0"}, "preset": "transit",
    }  # fmt: skip
    statistics = {
        "brightness": rng.gauss(80, 10),
        "scores": {label: rng.random() * 0.1 for label in LABELS},
        "signature": [round(rng.gauss(0, 0.05), 5) for _ in range(32)],
        "encoder": "0" * 64,
    }
    (folder / "events.json").write_text(
        json.dumps({"study": study, "unit": "frame", "events": events})
    )
    (folder / "statistics.json").write_text(json.dumps(statistics))
    (folder / "run.json").write_text(json.dumps(run))


def event(label: str, start: int, stop: int, score: float) -> dict[str, object]:
    return {"label": label, "start": start, "stop": stop, "score": round(score, 4)}


def measure(out: Path) -> None:
    start = time.perf_counter()
    catalogue = refresh_catalogue(out)
    built = time.perf_counter() - start
    size = sum(
        path.stat().st_size
        for name in (CATALOGUE, CATALOGUE_EVENTS)
        for path in ([out / name] if (out / name).is_file() else (out / name).iterdir())
    )
    events = out / CATALOGUE_EVENTS
    parts = len(list(events.iterdir())) if events.is_dir() else 1
    print(
        f"{catalogue.studies.height:,} studies, {catalogue.events.height:,} events "
        f"(in {parts} files); catalogue {size / 1e6:.1f} MB, built in {built:.1f} s"
    )

    def command(*arguments: object) -> float:
        words = [sys.executable, "-m", "enteron", *map(str, arguments)]
        return timed(lambda: subprocess.run(words, check=True, stdout=subprocess.DEVNULL))

    help_seconds = command("--help")
    print("\n| command | seconds |\n|---|---:|")
    print(f"| `enteron --help`, for comparison | {help_seconds:.2f} |")
    print(f"| `fleet status` | {command('fleet', 'status', out):.2f} |")
    print(f"| `fleet query`, {QUERY} | {command('fleet', 'query', out, QUERY):.2f} |")
    seconds = timed(lambda: refresh_catalogue(out))
    print(f"| refresh of an unchanged catalogue, in the process | {seconds:.2f} |")
    changed = out / "study-00000007" / "run.json"
    changed.write_text(changed.read_text().replace('"transit"', '"clinical"'))
    seconds = timed(lambda: refresh_catalogue(out), 1)
    print(f"| refresh after one study changed | {seconds:.2f} |")
    seconds = timed(lambda: write_fleet_page(out, refresh_catalogue(out)))
    print(f"| page written | {seconds:.2f} |")
    page = out / "index.html"
    print(f"\npage: {page.stat().st_size / 1e6:.2f} MB")
    if chromium() is None:
        print("Chromium is not installed: the page was not opened")
        return
    with Browser() as browser:
        opened: list[float] = []
        sorting = 0.0
        for _ in range(3):
            start = time.perf_counter()
            tab = browser.open(page)
            tab.wait_for("document.querySelectorAll('#rows tr').length === 50")
            tab.settle()
            opened.append(time.perf_counter() - start)
            begin = time.perf_counter()
            tab.click('[data-sort="confidence"]')
            sorting = time.perf_counter() - begin
            tab.close()
        print(f"opened in {sorted(opened)[1]:.2f} s; sorted by a column in {sorting:.2f} s")


if __name__ == "__main__":
    main()
