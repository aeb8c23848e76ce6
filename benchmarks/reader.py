"""The reader with a long study: first paint, jumps, 25 pictures a second, memory of the browser.

A study of 130,000 frames is made of a few drawn ones: as a folder of JPEG files (hard links), and
as a video with key frames 60 apart (one group of pictures, repeated). A shorter video with distant
key frames gets a pack first. The server runs in a process of its own.
"""

import argparse
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.video.stream import VideoStream

from benchmarks._reader_data import link_frames, transit_labels, write_reading
from enteron.decoding import DecodedEvent
from enteron.labels import LABELS
from enteron.phantom.dataset import PhantomOptions, StudyPlan
from enteron.priors import load_priors
from enteron.report.pictures import encode_jpeg
from enteron.runs import runs_of
from enteron.study import open_study
from enteron.study.study import RGB
from enteron.types import Scores
from tests.browser import Browser, Tab

DRAWN = 60
RATE = 4.0  # frames per second of the capsule
FAR_GROUP = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=130_000)
    parser.add_argument("--packed", type=int, default=6_000, help="frames of the video with a pack")
    parser.add_argument("--seconds", type=float, default=30, help="of playing")
    parser.add_argument("--jumps", type=int, default=60)
    parser.add_argument("--only", choices=("folder", "video", "pack"))
    parser.add_argument("--keep", type=Path, help="keep the studies in this folder")
    arguments = parser.parse_args()
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as temporary:
        root = arguments.keep or Path(temporary)
        pictures = drawn_frames()
        for kind in ("folder", "video", "pack"):
            if arguments.only in (None, kind):
                frames = arguments.packed if kind == "pack" else arguments.frames
                place = root / kind
                if not (place / "reading" / "run.json").exists():
                    make_study(place, kind, frames, pictures)
                measure(place, kind, frames, arguments.seconds, arguments.jumps)


# ---- studies


def drawn_frames() -> list[RGB]:
    """Some frames of a synthetic study."""
    options = PhantomOptions(frames=1500, seed=4, device="pillcam")
    plan = StudyPlan(1, options, load_priors())
    film = plan.film()
    rows = np.linspace(0, len(plan.table.axis) - 1, DRAWN).round().astype(int)
    return [film.frame(int(row)) for row in rows]


def make_study(place: Path, kind: str, frames: int, pictures: list[RGB]) -> None:
    (place / "studies").mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        path = link_frames([encode_jpeg(p) for p in pictures], place / "studies" / "long", frames)
    else:
        path = place / "studies" / "long.mp4"
        write_long_video(path, pictures, frames, FAR_GROUP if kind == "pack" else DRAWN)
    study = open_study(path, study_id="long")
    labels = transit_labels(len(study))
    rng = np.random.default_rng(1)
    values = np.where(labels, 0.8, 0.03) + rng.uniform(0, 0.15, labels.shape)
    scores = Scores("long", study.axis, values.astype(np.float32), np.arange(len(study)) / RATE)
    events = [
        DecodedEvent(int(study.numbers[a]), int(study.numbers[b - 1]) + 1, label, 0.8)
        for column, label in enumerate(LABELS)
        for a, b in runs_of(labels[:, column])
    ]
    write_reading(place / "reading", study, scores, events=events, rate=RATE)
    study.close()


def write_long_video(path: Path, pictures: list[RGB], count: int, group: int) -> None:
    """A video of one group of pictures, whose packets are written again and again."""
    with av.open(str(path), "w") as container:
        rate = Fraction(25)
        options = {"g": str(group), "keyint_min": str(group), "sc_threshold": "0", "bf": "0"}
        stream = container.add_stream("libx264", rate=rate, options={**options, "preset": "fast"})
        assert isinstance(stream, VideoStream)
        height, width = pictures[0].shape[:2]
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        packets: list[tuple[bytes, bool]] = []
        for number in range(group):
            image = np.roll(pictures[number % len(pictures)], number // len(pictures), axis=1)
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
            packets += [(bytes(p), p.is_keyframe) for p in stream.encode(frame)]
        packets += [(bytes(p), p.is_keyframe) for p in stream.encode()]
        base = stream.codec_context.time_base
        for number in range(count):
            content, is_key = packets[number % len(packets)]
            packet = av.Packet(content)
            packet.pts = packet.dts = round(number / rate / base)
            packet.duration = round(1 / rate / base)
            packet.time_base, packet.stream, packet.is_keyframe = base, stream, is_key
            container.mux(packet)


# ---- measuring


@contextmanager
def running_server(place: Path) -> Iterator[str]:
    """The address of `enteron serve`."""
    command = [sys.executable, "-m", "enteron", "serve", str(place), "--studies",
               str(place / "studies"), "--port", "0", "--no-open"]  # fmt: skip
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        address = re.search(r"http://\S+", line)
        if address is None:
            raise SystemExit(f"the server did not start: {line}")
        yield address.group().rstrip("/")
    finally:
        server.terminate()
        server.wait(20)


def measure(place: Path, kind: str, frames: int, seconds: float, jumps: int) -> None:
    print(f"\n{kind}: {frames:,} frames")
    with running_server(place) as address, Browser(timeout=600) as browser:
        tab = browser.open("about:blank", 1400, 950)
        tab.wait(2)
        before = browser_memory()
        begin = time.perf_counter()
        tab.page.goto(f"{address}/read/long")
        tab.wait_for("document.querySelector('#reader.is-complete')")
        settled = "document.getElementById('source').textContent === ''"
        tab.wait_for(settled)
        done = "files compared, pack made" if kind == "pack" else "files compared"
        print(f"  {done}, once: {time.perf_counter() - begin:.1f} s")
        paints: list[tuple[float, float]] = []
        for _ in range(5):
            tab.page.reload()
            tab.wait_for("document.querySelector('#reader.is-complete')")
            tab.wait_for("enteron.player.stats.first > 0")
            contentful = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
            paints.append((tab.run(contentful), tab.run("enteron.player.stats.first")))
        contentful_ms, picture_ms = (statistics.median(p[i] for p in paints) for i in (0, 1))
        print(
            f"  first paint: {contentful_ms:.0f} ms, first picture of the study "
            f"{picture_ms:.0f} ms (median of 5; target 1,500)"
        )
        print_jumps(tab, frames, jumps)
        for up in (1, 4):
            print_playing(tab, frames, up, seconds)
        after = browser_memory()
        above = (after - before) / 1e6
        print(f"  memory of the browser above an empty page: {above:.0f} MB (target 300)")


def print_jumps(tab: Tab, frames: int, jumps: int) -> None:
    rng = random.Random(3)
    tab.run("enteron.player.stats.jumps.length = 0")
    for _ in range(jumps):
        tab.run(f"enteron.player.show({rng.randrange(frames)})")
        tab.wait_for("enteron.player.jumpedAt === 0")
        tab.wait(0.05)
    times = sorted(tab.run("enteron.player.stats.jumps"))
    p95 = times[min(len(times) - 1, int(0.95 * len(times)))]
    print(
        f"  {len(times)} jumps: median {statistics.median(times):.0f} ms, 95 % under {p95:.0f} ms, "
        f"longest {times[-1]:.0f} ms (target 200 for 95 %)"
    )


def print_playing(tab: Tab, frames: int, up: int, seconds: float) -> None:
    tab.run(f"enteron.player.setUp({up})")
    tab.run(f"enteron.player.show({frames // 3})")
    tab.wait_for("enteron.player.jumpedAt === 0")
    tab.run("enteron.player.speed = 25")
    tab.run("enteron.player.play()")
    tab.wait(1)
    tab.run("Object.assign(enteron.player.stats, { shown: 0, late: 0, worst: 0 })")
    tab.wait(seconds)
    shown, late, worst = (tab.run(f"enteron.player.stats.{n}") for n in ("shown", "late", "worst"))
    tab.run("enteron.player.pause()")
    print(
        f"  {up} up, {seconds:.0f} s at 25/s: {shown / seconds:.1f} pictures/s, "
        f"{100 * late / max(1, shown):.2f} % late, worst {worst:.0f} ms (target 25, 1 %)"
    )


def browser_memory() -> int:
    """Proportional share of memory of all processes of the browser that this one started, bytes."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    total = 0
    for process in parents:
        above = process
        while above in parents and above != os.getpid():
            above = parents[above]
        if above != os.getpid():
            continue
        try:
            if b"chrom" not in Path(f"/proc/{process}/cmdline").read_bytes():
                continue
            rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
        except OSError:
            continue
        found = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
        total += 0 if found is None else 1024 * int(found.group(1))
    return total


if __name__ == "__main__":
    main()
