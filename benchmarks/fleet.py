"""Many studies: throughput against two simpler ways, and a run that is killed again and again.

Throughput: studies of 200 frames read (1) by one `enteron read` process each, (2) by a plain loop
over one `Reader` in one process, (3) by `enteron fleet run`. All three from the start of the first
process to the end of the last, in turns, medians of several rounds; `lite` backbone.

Kills: 50 short studies, 5 of them broken in different ways, read once undisturbed and once with
kill -9 at random moments; files are compared, and frames on the disk are counted after every kill.
"""

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

from enteron.folders.model import save_model
from enteron.inference.store import open_embeddings
from enteron.model.network import start_network
from enteron.model.options import ModelOptions
from tests.fleet.making import break_studies, reading_bytes

SIDE = 336  # pixels, as capsules of the Galar dataset have them
CHUNK = 64  # frames, as `EmbedOptions` has it

LOOP = """
import sys
from pathlib import Path
from enteron.reading import Reader
root, out, model = map(Path, sys.argv[1:])
reader = Reader(model)
for study in sorted(root.iterdir()):
    reader.read(study, out / study.name)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=12, help="of the throughput")
    parser.add_argument("--frames", type=int, default=200, help="of each of them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--only", choices=("throughput", "kills"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = folder / "model"
        save_model(model, start_network(ModelOptions(backbone="lite")))
        if arguments.only != "kills":
            measure_throughput(folder, model, arguments)
        if arguments.only != "throughput":
            measure_kills(folder, model, arguments)


def write_study(folder: Path, frames: int, seed: int) -> None:
    """Smooth blobs in a circle, as JPEG: as costly to decode as real frames."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    y, x = np.mgrid[:SIDE, :SIDE] - SIDE / 2
    inside = (x**2 + y**2 < (0.48 * SIDE) ** 2)[..., None]
    for number in range(frames):
        small = rng.integers(20, 220, (14, 14, 3)).astype(np.float32)
        image = cv2.resize(small, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)
        image += rng.normal(0, 6, image.shape)
        picture = (np.clip(image, 0, 255) * inside).astype(np.uint8)
        data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 90])[1]
        (folder / f"frame_{number:06d}.jpg").write_bytes(data.tobytes())


# ---- throughput


def measure_throughput(folder: Path, model: Path, arguments: argparse.Namespace) -> None:
    root = folder / "throughput"
    for number in range(arguments.studies):
        write_study(root / str(number + 1), arguments.frames, number)
    enteron = [sys.executable, "-m", "enteron"]

    def one_by_one(out: Path) -> None:
        for study in sorted(root.iterdir()):
            call([*enteron, "read", study, "--model", model, "--out", out / study.name])

    ways: dict[str, Callable[[Path], None]] = {
        "one `enteron read` each": one_by_one,
        "plain loop over a `Reader`": lambda out: call(
            [sys.executable, "-c", LOOP, root, out, model]
        ),
        "`enteron fleet run`": lambda out: call(
            [*enteron, "fleet", "run", root, "--out", out, "--model", model]
        ),
    }
    call([*enteron, "read", root / "1", "--model", model, "--out", folder / "warm"])  # graph cache
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(arguments.rounds):
        for name, way in ways.items():
            out = folder / f"out-{turn}"
            out.mkdir()
            start = time.perf_counter()
            way(out)
            seconds[name].append(time.perf_counter() - start)
            finished = sum(
                json.loads(path.read_text())["state"] == "finished"
                for path in out.glob("*/run.json")
            )
            assert finished == arguments.studies, f"{name}: {finished} studies"
            shutil.rmtree(out)
    print(
        f"{arguments.studies} studies of {arguments.frames} frames, {os.cpu_count()} cores, "
        f"median of {arguments.rounds} rounds\n"
    )
    print("| way | seconds | studies an hour | fleet is x times as fast |")
    print("|---|---:|---:|---:|")
    fleet = seconds["`enteron fleet run`"]
    for name, times in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(times, fleet, strict=True))
        middle = statistics.median(times)
        print(f"| {name} | {middle:.1f} | {3600 * arguments.studies / middle:,.0f} | {ratio:.2f} |")
    print()


def call(command: list[object]) -> None:
    subprocess.run(
        [str(word) for word in command], check=True, stdout=subprocess.DEVNULL, stderr=None
    )


# ---- kills


def measure_kills(folder: Path, model: Path, arguments: argparse.Namespace) -> None:
    root = folder / "kills"
    rng = random.Random(arguments.seed)
    for number in range(45):
        write_study(root / str(number + 1), rng.randint(70, 200), 1000 + number)
    broken = break_studies(root)
    undisturbed = folder / "undisturbed"
    start = time.perf_counter()
    code, said = run_fleet(root, undisturbed, model).finish()
    alone = time.perf_counter() - start
    expected = reading_bytes(undisturbed)
    total = frames_on_disk(undisturbed)
    print(f"50 studies, {total:,} frames, undisturbed: {alone:.0f} s, exit code {code}; {said[-1]}")
    disturbed = folder / "disturbed"
    before = 0
    for _ in range(arguments.kills):
        process = run_fleet(root, disturbed, model)
        time.sleep(rng.uniform(0.1, 0.9) * alone / (arguments.kills + 1) * 1.5)
        process.kill()
        after = frames_on_disk(disturbed)
        assert after >= before, "frames were lost"
        print(f"killed with {after:,} of {total:,} frames on the disk (before: {before:,})")
        before = after
    start = time.perf_counter()
    code, said = run_fleet(root, disturbed, model).finish()
    print(f"the last run took {time.perf_counter() - start:.0f} s; {said[-1]}")
    got = reading_bytes(disturbed)
    differing = [name for name in expected if got.get(name) != expected[name]]
    encoded = encoded_frames(said)
    wasted = encoded - (total - before)
    print(f"files compared: {len(expected)}, different: {len(differing)}")
    print(
        f"the last run encoded {encoded:,} frames where {total - before:,} were missing: "
        f"{wasted} twice"
    )
    sentences = [line.strip() for line in said if any(name in line for name in broken)]
    print("quarantined:")
    for line in sorted({line for line in sentences if "quarantined:" in line}):
        print(f"  {line}")
    assert not differing
    assert set(got) == set(expected)
    assert wasted == 0


class FleetProcess:
    """`enteron fleet run` in a process of its own."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def finish(self) -> tuple[int, list[str]]:
        """Wait for the end: exit code and what it said."""
        said, _ = self._process.communicate()
        return self._process.returncode, [line for line in said.splitlines() if line]

    def kill(self) -> None:
        """Kill -9; the workers end with it."""
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()
        time.sleep(0.5)


def run_fleet(root: Path, out: Path, model: Path) -> FleetProcess:
    command = [sys.executable, "-m", "enteron", "fleet", "run", root, "--out", out]
    return FleetProcess([str(word) for word in [*command, "--model", model, "--workers", "2"]])


def frames_on_disk(out: Path) -> int:
    """Frames of finished stores, and of journalled chunks of unfinished ones."""
    frames = 0
    for path in out.glob("*/embeddings.npy"):
        frames += len(open_embeddings(path, check=False))
    for path in out.glob("*/embeddings.npy.journal"):
        if not path.with_name("embeddings.npy").exists():
            lines = path.read_bytes().split(b"\n")[1:-1]
            frames += sum(len(json.loads(line)["source"]) for line in lines)
    return frames


def encoded_frames(said: list[str]) -> int:
    """Frames that a run encoded, as its last lines tell."""
    (line,) = (line for line in said if line.startswith("Encoded "))
    return int(line.split()[1].replace(",", ""))


if __name__ == "__main__":
    main()
