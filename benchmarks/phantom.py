"""Making synthetic studies: frames a second, files included, and memory against their number."""

import argparse
import json
import subprocess
import sys
import tempfile
import time

# Runs the command in a process of its own and reports the largest of its processes.
_MEASURED = """
import json, resource, subprocess, sys
subprocess.run([sys.executable, "-m", "enteron", "phantom", *sys.argv[1:]], check=True,
               stdout=subprocess.DEVNULL)
print(json.dumps(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
"""


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--studies", type=int, default=8)
    arguments.add_argument("--frames", type=int, default=2000)
    given = arguments.parse_args()
    make("olympus", 1, 8)  # compiles the renderer where that has not been done
    print("device    studies  frames   seconds  frames/s   largest process")
    for device, studies in (
        ("olympus", max(1, given.studies // 4)),
        ("olympus", given.studies),
        ("mixed", given.studies),
    ):
        seconds, kilobytes = make(device, studies, given.frames)
        frames = studies * given.frames
        print(
            f"{device:9} {studies:7} {frames:7}   {seconds:7.1f}   {frames / seconds:7.1f}   "
            f"{kilobytes / 1024:7.0f} MiB",
            flush=True,
        )


def make(device: str, studies: int, frames: int) -> tuple[float, int]:
    """Seconds and peak memory (KiB) of one run, start-up included."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = ["--studies", studies, "--frames", frames, "--seed", 1, "--device", device]
        command = [sys.executable, "-c", _MEASURED, f"{folder}/out", *map(str, wanted)]
        begin = time.perf_counter()
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return time.perf_counter() - begin, json.loads(done.stdout)


if __name__ == "__main__":
    main()
