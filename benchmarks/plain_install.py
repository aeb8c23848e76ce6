"""A plain installation: the wheel into an empty environment, then a video read without network.

Nothing of the extra `train` is installed. The video is H.264 in MP4, as a phone or a recorder's
export makes it; it is read on the command line, and in Python as in a notebook. Needs a package
index, or a folder of wheels that pip is set up to use, for the dependencies.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from enteron.errors import EnteronError
from tests.making import write_video

ROOT = Path(__file__).parents[1]
FRAMES = 120
ABSENT = ("torch", "torchvision", "timm", "open_clip", "transformers", "onnx", "safetensors")
MAX_MODEL = 12_000_000  # bytes

NOTEBOOK = """
import importlib.util, json
installed = [name for name in {absent!r} if importlib.util.find_spec(name)]
import enteron
reading = enteron.read("study.mp4", model={model!r}, out="notebook")
facts = reading.run.model
print(json.dumps({{"installed": installed, "page": len(reading._repr_html_()),
                  "frames": reading.run.rows, "model": facts.sentence}}))
"""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, help="a packed model folder [the one in the package]")
    options = parser.parse_args(arguments)
    model = None if options.model is None else str(options.model.resolve())
    with tempfile.TemporaryDirectory() as name:
        check_installation(Path(name), model)


def check_installation(folder: Path, model: str | None) -> None:
    """Build, install, read twice; whatever is not as promised ends in an error."""
    wheel = build_wheel(folder / "wheel")
    print(f"wheel: {wheel.stat().st_size / 1e6:.2f} MB")
    start = time.perf_counter()
    programs = install(wheel, folder / "env")
    packages = sorted((folder / "env").glob("lib/python3*/site-packages"))[0]
    size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file())
    count = len(list(packages.glob("*.dist-info")))
    print(f"installed: {count} packages, {size / 1e6:.0f} MB, {time.perf_counter() - start:.0f} s")
    work = folder / "work"
    work.mkdir()
    write_video(work / "study.mp4", FRAMES, "libx264")
    offline = without_network()
    print(f"network: {'cut off' if offline else 'not cut off, since unshare is not permitted'}")

    start = time.perf_counter()
    named = [] if model is None else ["--model", model]
    command = [*offline, str(programs / "enteron"), "read", "study.mp4", "--out", "cli", *named]
    print(run(command, work).strip())
    print(f"command line: {time.perf_counter() - start:.0f} s, compiling included")
    start = time.perf_counter()
    code = NOTEBOOK.format(absent=ABSENT, model=model)
    output = run([*offline, str(programs / "python"), "-c", code], work)
    facts = json.loads(output.splitlines()[-1])
    print(f"in Python: {time.perf_counter() - start:.0f} s; model: {facts['model']}")
    require(facts["installed"] == [], f"{facts['installed']} are installed")
    require(facts["frames"] == FRAMES and facts["page"] > 0, "the reading is not complete")
    for out in ("cli", "notebook"):
        page = (work / out / "report.html").read_text(encoding="utf-8")
        study = json.loads((work / out / "run.json").read_text())["study"]
        require("</html>" in page and study in page, f"the page in {out} is not complete")
    scores = [(work / out / "embeddings.npy").read_bytes() for out in ("cli", "notebook")]
    require(scores[0] == scores[1], "both readings should have the same embeddings")
    print("both pages are complete; none of " + ", ".join(ABSENT) + " is installed")


def build_wheel(folder: Path) -> Path:
    """The wheel of the checkout."""
    run([sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(folder), str(ROOT)], ROOT)
    return next(folder.glob("enteron-*.whl"))


def install(wheel: Path, environment: Path) -> Path:
    """Install the wheel alone, into a new environment; returns the folder of its programs."""
    venv.create(environment, with_pip=True)
    programs = environment / "bin"
    run([str(programs / "python"), "-m", "pip", "install", "--quiet", str(wheel)], environment)
    return programs


def without_network() -> list[str]:
    """A command that runs another one without network, if this machine permits that."""
    for command in (["unshare", "-n"], ["unshare", "-rn"]):
        try:
            subprocess.run([*command, "true"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return command
    return []


def run(command: list[str], folder: Path) -> str:
    """What a command prints; its own message where it fails."""
    # Nothing of this environment: neither its packages nor its caches.
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "ENTERON_MODEL")}
    done = subprocess.run(
        command, cwd=folder, env=kept | {"COLUMNS": "120"}, capture_output=True, text=True
    )
    require(done.returncode == 0, f"`{' '.join(command[:4])} …` failed: {done.stderr[-2000:]}")
    return done.stdout


def require(holds: bool, problem: str) -> None:
    if not holds:
        raise EnteronError(problem, "a plain installation does not work")


if __name__ == "__main__":
    main()
