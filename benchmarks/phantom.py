"""Drawing synthetic studies: frames a second, files included, and how memory grows with them."""

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
    parser = argparse.ArgumentParser()
    parser.add_argument("--studies", type=int, default=8)
    parser.add_argument("--frames", type=int, default=2000)
    options = parser.parse_args()
    measure("olympus", 1, 8)  # compiles the renderer if that has not been done
    print("device    studies  frames   seconds  frames/s   largest process")
    for device, studies in (
        ("olympus", max(1, options.studies // 4)),
        ("olympus", options.studies),
        ("mixed", options.studies),
    ):
        seconds, kilobytes = measure(device, studies, options.frames)
        frames = studies * options.frames
        print(
            f"{device:9} {studies:7} {frames:7}   {seconds:7.1f}   {frames / seconds:7.1f}   "
            f"{kilobytes / 1024:7.0f} MiB",
            flush=True,
        )


def measure(device: str, studies: int, frames: int) -> tuple[float, int]:
    """Seconds and peak memory (KiB) of one run, start-up included."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["--studies", studies, "--frames", frames, "--seed", 1, "--device", device]
        command = [sys.executable, "-c", _MEASURED, f"{folder}/out", *map(str, arguments)]
        start = time.perf_counter()
        finished = subprocess.run(command, check=True, capture_output=True, text=True)
        return time.perf_counter() - start, json.loads(finished.stdout)


if __name__ == "__main__":
    main()
