"""How much neighbouring frames differ: synthetic studies beside 55 real frames.

Mean absolute difference, in grey levels, of frames reduced to 64x64. Run:
python benchmarks/phantom_neighbours.py [--frames N] [--studies N]
"""

import argparse
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from enteron.labels import COLUMN
from enteron.phantom.film import Film
from enteron.phantom.motion import DRIFT, LIVELY, STALL

REAL = Path(__file__).resolve().parents[1] / ".." / "shared" / "images" / "kvasir-capsule-seg"
QUANTILES = (0, 10, 25, 50, 75, 90, 100)


def small(frame: NDArray[np.uint8], code: int) -> NDArray[np.float64]:
    grey = cv2.cvtColor(frame, code)
    return cv2.resize(grey, (64, 64), interpolation=cv2.INTER_AREA).astype(np.float64)


def print_row(name: str, differences: list[float]) -> None:
    if not differences:
        print(f"{name:34s} none")
        return
    cells = "".join(f"{value:8.1f}" for value in np.percentile(differences, QUANTILES))
    print(f"{name:34s}{len(differences):7d}{cells}")


def real_differences() -> list[float]:
    differences: list[float] = []
    previous: tuple[int, NDArray[np.float64]] | None = None
    for path in sorted(REAL.glob("*.jpg")):
        number = int(path.stem.rsplit("_", 1)[1])
        picture = cv2.imread(str(path), cv2.IMREAD_COLOR)
        if picture is None:
            continue
        grey = small(np.asarray(picture, np.uint8), cv2.COLOR_BGR2GRAY)
        if previous is not None and number == previous[0] + 1:
            differences.append(float(np.abs(grey - previous[1]).mean()))
        previous = (number, grey)
    return differences


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=150, help="neighbours per study and device")
    parser.add_argument("--studies", type=int, default=2)
    options = parser.parse_args()
    cv2.setNumThreads(1)
    print(f"{'':34s}{'pairs':>7s}" + "".join(f"{f'{q} %':>8s}" for q in QUANTILES))
    real = real_differences()
    if real:
        print_row("real, one lively olympus study", real)
    else:
        print("real frames: skipped, since there are none beside the repository")
    total = 20_000
    labels = np.zeros((total, 17), np.bool_)
    labels[:, COLUMN["small intestine"]] = True
    kinds: dict[str, list[float]] = {name: [] for name in ("stall", "drift", "lively", "jump")}
    names = {STALL: "stall", DRIFT: "drift", LIVELY: "lively"}
    for device in ("olympus", "pillcam", "navicam"):
        differences: list[float] = []
        for study in range(options.studies):
            film = Film(labels, device, 1000 + study)
            motion = film.motion
            for i in np.random.default_rng(study).integers(1, total, options.frames):
                pair = [small(film.frame(int(k)), cv2.COLOR_RGB2GRAY) for k in (i - 1, i)]
                difference = float(np.abs(pair[1] - pair[0]).mean())
                differences.append(difference)
                jumped = bool(motion.jump[i])
                kinds["jump" if jumped else names[int(motion.kind[i])]].append(difference)
        print_row(device, differences)
    for name, differences in kinds.items():
        print_row(f"all devices, {name}", differences)


if __name__ == "__main__":
    main()
