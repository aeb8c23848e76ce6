"""Makes the pictures of docs/reader.md: every page of the reader, with a drawn study.

Nothing is measured here. Frames are drawn and scores simulated from their truth; drawing takes some
minutes (`--data` keeps the studies).
"""

import argparse
import tempfile
from pathlib import Path

import cv2
import numpy as np

from benchmarks._reader_data import phantom_labels, simulated_scores, write_reading
from enteron.phantom.dataset import PhantomOptions, make_studies
from enteron.priors import load_priors
from enteron.study import open_study
from tests.browser import Browser
from tests.serve.making import server
from tests.serve.scenario import read_and_sign

OUT = Path(__file__).parents[1] / "docs"
RATE = 0.05  # rows per second: a shortened study that takes as long as a real one
STRIP = ("suspicious", "add", "landmarks", "scores", "playing", "signed")
WIDTH, HEIGHT = 1400, 950


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--data", type=Path, help="keep the drawn studies in this folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        data = arguments.data or Path(temporary) / "data"
        for _ in make_studies(data, 2, PhantomOptions(frames=1500, seed=3), priors=load_priors()):
            pass  # studies that exist already are kept
        root = Path(temporary) / "readings"
        for path in sorted(data.glob("Galar_Frames_*/*")):
            study = open_study(path)
            labels = phantom_labels(data, study)
            scores = simulated_scores(study.id, study, labels, RATE)
            write_reading(root / f"reading-{study.id}", study, scores, rate=RATE)
        with Browser(timeout=120) as browser:
            with server(root, studies=data) as address:
                take_pictures(browser, address, arguments.out)
            with server(root, studies=data, verify=lambda _name, _secret: "reader") as address:
                tab = browser.open(f"{address}/login", 700, 420)
                tab.settle()
                write_picture(arguments.out / "reader-login.webp", decoded(tab.screenshot()))
                tab.close()


def take_pictures(browser: Browser, address: str, out: Path) -> None:
    tab = browser.open(f"{address}/", WIDTH, HEIGHT)
    taken: dict[str, bytes] = {}

    def shoot(name: str) -> None:
        tab.settle()
        tab.wait(0.6)
        tab.wait_for("!document.querySelector('.toast')")  # they cover the end of the time bar
        taken[name] = tab.screenshot(whole=name == "signed")

    caecum, missed = 5500, 2300  # every fifth frame is stored
    read_and_sign(tab, missed=missed, caecum=caecum, shoot=shoot)
    tab.close()
    for name in ("worklist", "suspicious", "landmarks", "playing", "report", "signed"):
        # The worklist of two studies leaves most of its page empty.
        image = decoded(taken[name])[: 380 if name == "worklist" else None]
        write_picture(out / f"reader-{name}.webp", image)
    cells = [
        cv2.resize(decoded(taken[name])[:HEIGHT], (560, 380), interpolation=cv2.INTER_AREA)
        for name in STRIP
    ]
    rows = [np.hstack(cells[i : i + 3]) for i in range(0, len(cells), 3)]
    write_picture(out / "reader-strip.webp", np.vstack(rows))


def decoded(png: bytes) -> np.ndarray:
    image = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR)
    assert image is not None
    return image


def write_picture(path: Path, image: np.ndarray) -> None:
    content = cv2.imencode(".webp", image, [cv2.IMWRITE_WEBP_QUALITY, 72])[1].tobytes()
    path.write_bytes(content)
    print(f"{path.name}: {len(content) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
