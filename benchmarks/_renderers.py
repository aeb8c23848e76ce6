"""Drawings by the renderer of this checkout, or by that of another commit, to compare the two.

The sources of a commit are unpacked with `git archive` into `runs/renderers/COMMIT` and drawn with
in a process of their own, so the benchmark that measures is the same for both. As a script, this
file draws what a plan (`draw`) asks for and needs nothing but `enteron.phantom.film`.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "runs" / "renderers"
BEFORE = "230c1783c5fafaa2827d65a2f0a0ed4bb445e2fb"
"""The last commit before drawings were fitted to real frames (4159ec4 and 021008a)."""


@dataclass(frozen=True)
class FilmPlan:
    """A synthetic Olympus study and the rows of it to draw."""

    length: int  # rows
    runs: tuple[tuple[int, int, int], ...]  # column of a label, start, stop
    seed: int
    rows: tuple[int, ...]
    stalls: float | None = None  # None: the renderer's own share


def renderer_sources(commit: str | None) -> Path:
    """The folder to put first on `PYTHONPATH`: of this checkout, or of a commit."""
    if commit is None:
        return ROOT / "src"
    named = subprocess.run(
        ["git", "rev-parse", "--verify", f"{commit}^{{commit}}"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if named.returncode:
        from enteron.errors import EnteronError

        raise EnteronError(
            f"this checkout has no commit '{commit}'", "fetch its whole history, or name another"
        )
    folder = RUNS / named.stdout.strip()
    if not folder.exists():
        part = folder.with_name(f".{folder.name}")
        shutil.rmtree(part, ignore_errors=True)
        archive = subprocess.run(
            ["git", "archive", folder.name, "src"], cwd=ROOT, capture_output=True, check=True
        ).stdout
        with tarfile.open(fileobj=BytesIO(archive)) as files:
            files.extractall(part, filter="data")
        part.rename(folder)
    return folder / "src"


def renderer_environment(commit: str | None) -> dict[str, str]:
    """Variables for a process that draws with the renderer of a commit."""
    return os.environ | {"PYTHONPATH": str(renderer_sources(commit))}


def renderer_hash(commit: str | None) -> str:
    """Of the renderer's sources."""
    files = sorted((renderer_sources(commit) / "enteron" / "phantom").glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def draw(
    films: Iterable[FilmPlan], commit: str | None, side: int | None = None, quality: int = 75
) -> list[Path]:
    """A folder of `frame_NNNNNN` for each film; earlier drawings of the same are not made again.

    With `side`, frames are reduced to it and stored as JPEG; without, as they are, as PNG.
    """
    plans = [asdict(film) | {"side": side, "quality": quality} for film in films]
    code = renderer_hash(commit)
    folders = [
        RUNS / "drawn" / hashlib.sha256((code + json.dumps(plan)).encode()).hexdigest()[:16]
        for plan in plans
    ]
    missing = [
        plan | {"folder": str(folder)}
        for plan, folder in zip(plans, folders, strict=True)
        if not folder.exists()
    ]
    if missing:
        subprocess.run(
            [sys.executable, str(Path(__file__).resolve())],
            input=json.dumps(missing), text=True, env=renderer_environment(commit), check=True,
        )  # fmt: skip
    return folders


def _main() -> None:
    import cv2
    import numpy as np

    from enteron.phantom.film import Film

    cv2.setNumThreads(1)
    for plan in json.load(sys.stdin):
        labels = np.zeros((plan["length"], 17), np.bool_)
        for column, start, stop in plan["runs"]:
            labels[start:stop, column] = True
        stalls = {} if plan["stalls"] is None else {"stalls": plan["stalls"]}
        film = Film(labels, "olympus", plan["seed"], **stalls)
        folder = Path(plan["folder"])
        part = folder.with_name(f".{folder.name}")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for row in plan["rows"]:
            frame = cv2.cvtColor(film.frame(row), cv2.COLOR_RGB2BGR)
            if plan["side"] is None:
                packed = cv2.imencode(".png", frame, [cv2.IMWRITE_PNG_COMPRESSION, 1])[1]
                name = f"frame_{row:06d}.png"
            else:
                size = (plan["side"], plan["side"])
                small = cv2.resize(frame, size, interpolation=cv2.INTER_AREA)
                packed = cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, plan["quality"]])[1]
                name = f"frame_{row:06d}.jpg"
            (part / name).write_bytes(packed.tobytes())
        part.rename(folder)


if __name__ == "__main__":
    _main()
