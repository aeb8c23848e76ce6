"""How a command ends when it cannot go on: one sentence, and never a traceback.

Bad input is an `EnteronError` with its own sentence. Whatever else comes up to here was foreseen by
nobody: the sentence then names the command, the stage and a file with the details. That file holds
positions in code and versions, no values: an exception's text may quote a patient's name.
"""

import errno
import os
import platform
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NoReturn

from enteron.errors import EnteronError
from enteron.files import write_text

_PACKAGE = Path(__file__).parents[1]
_PACKAGES = ("enteron", "numpy", "polars", "pydantic", "torch", "onnxruntime", "av", "typer")

# What a part of the package does, for people. The innermost part in the traceback counts.
_STAGES = {
    "study": "reading the study",
    "datasets": "reading labels or events",
    "priors": "reading or fitting priors",
    "phantom": "drawing synthetic studies",
    "model": "loading the model",
    "inference": "encoding and scoring frames",
    "calibration": "applying the calibration",
    "decoding": "decoding events",
    "metrics": "computing metrics",
    "folders": "reading or writing the files of a folder",
    "fitting": "fitting the calibration",
    "training": "training",
    "report": "making the page",
    "reading": "reading the study",
    "review": "keeping reviews",
    "serve": "serving the reader",
    "demo": "running the demonstration",
}


def fail(sentence: str) -> NoReturn:
    """Print the sentence to standard error and exit with 1."""
    from enteron.cli.console import plain

    print(f"enteron: {plain(sentence)}", file=sys.stderr)
    sys.exit(1)


def fail_with(error: BaseException, arguments: list[str]) -> NoReturn:
    """End a command after an exception; `arguments` are those of the command line."""
    if isinstance(error, EnteronError):
        fail(str(error))
    if isinstance(error, OSError) and error.errno is not None:
        if _was_printing(error):
            _end_output(error)
        fail(_system_sentence(error, arguments))
    stage = _stage(error)
    command = _command(arguments)
    if isinstance(error, MemoryError):
        problem = f"the memory was not enough for `{command}` while {stage}"
        remedy = "close other programs, or use a machine with more memory"
    else:
        problem = f"`{command}` failed while {stage} ({type(error).__name__}), an error in enteron"
        remedy = "please report it"
    place = _write_details(error, arguments, stage)
    fail(f"{problem}; {remedy}" + (f"; details are in {place}." if place else "."))


def flush_output() -> None:
    """Flush standard output; a closed pipe is no failure, a full disk is one."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _end_output(error)


def _was_printing(error: OSError) -> bool:
    """Whether standard output failed: commands and what prints for them write no other file."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    name = _code_name(frame.f_code.co_filename)
    return error.filename is None and name.startswith(("enteron/cli/", "rich/", "typer/"))


def _end_output(error: OSError) -> NoReturn:
    # Nothing more can be written there, and Python would try again at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):  # `enteron … | head` has seen enough
        sys.exit(1)
    fail(
        f"the output cannot be written ({error.strerror}); free some disk space, or send it "
        "elsewhere."
    )


def _command(arguments: list[str]) -> str:
    name = next((word for word in arguments if word.isalpha() and word.isascii()), "")
    return f"enteron {name}".strip()


def _stage(error: BaseException) -> str:
    """What the innermost part of enteron in the traceback was doing."""
    stage = "starting"
    for frame, _ in traceback.walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(_PACKAGE):
            part = path.relative_to(_PACKAGE).parts[0].removesuffix(".py")
            stage = _STAGES.get(part, stage)
    return stage


def _output_folder(arguments: list[str]) -> Path | None:
    """The folder of `--out`, where the command has one."""
    for position, word in enumerate(arguments):
        if word == "--out" and position + 1 < len(arguments):
            return Path(arguments[position + 1])
        if word.startswith("--out="):
            return Path(word.removeprefix("--out="))
    return None


def _system_sentence(error: OSError, arguments: list[str]) -> str:
    """Name the file, or at least the folder, and say what to do about it."""
    reason = error.strerror or type(error).__name__
    out = _output_folder(arguments)
    # Names only: the folders above may be named after a patient.
    if error.filename is not None:
        what = f"'{Path(os.fsdecode(error.filename)).name}'"
    elif out is not None:
        what = f"a file in the output folder '{out.name}'"
    else:
        what = f"a file that was in use while {_stage(error)}"
    remedy = {
        errno.ENOSPC: "free some disk space and run again",
        errno.EDQUOT: "free some disk space and run again",
        errno.EFBIG: "free some disk space and run again",
        errno.EACCES: "ask for the right to use it, or give another folder",
        errno.EPERM: "ask for the right to use it, or give another folder",
        errno.EROFS: "give a folder that can be written to",
        errno.EMFILE: "close other programs, or raise the limit with `ulimit -n`",
        errno.ENFILE: "close other programs, or raise the limit with `ulimit -n`",
        errno.ENOENT: "it is not there, or no longer; check it and run again",
        errno.ENOMEM: "close other programs, or use a machine with more memory",
    }.get(error.errno or 0, "check it, and the disk it is on, and run again")
    return f"{what} cannot be used ({reason}); {remedy}."


def _write_details(error: BaseException, arguments: list[str], stage: str) -> str | None:
    """Write the details to the output folder, or to the temporary one; say where they are."""
    name = f"enteron-error-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    text = _details(error, arguments, stage)
    out = _output_folder(arguments)
    if out is not None and out.is_dir():
        try:
            write_text(out / name, text)
        except EnteronError:
            pass  # read-only or full: the temporary folder is left
        else:
            return f"'{name}' in the output folder '{out.name}'"
    try:
        folder = Path(tempfile.gettempdir())
        write_text(folder / name, text)
    except (EnteronError, OSError):
        return None
    return f"'{folder / name}'"


def _details(error: BaseException, arguments: list[str], stage: str) -> str:
    from enteron.folders.reading import package_versions

    options = [word.partition("=")[0] for word in arguments if word.startswith("-")]
    lines = [
        "enteron failed. This file holds no values of the study: positions in code only.",
        f"command: {' '.join([_command(arguments), *options])}",
        f"stage: {stage}",
        f"python: {platform.python_version()} on {platform.system()} {platform.machine()}",
        "versions: "
        + ", ".join(f"{name} {version}" for name, version in package_versions(*_PACKAGES).items()),
    ]
    chain: BaseException | None = error
    for _ in range(8):  # exceptions may form long chains, even circles
        if chain is None:
            break
        number = getattr(chain, "errno", None)
        code = f" (errno {number})" if isinstance(number, int) else ""
        lines.append(f"{type(chain).__module__}.{type(chain).__qualname__}{code}, raised at:")
        positions = [
            f"  {_code_name(frame.f_code.co_filename)}:{line} {frame.f_code.co_name}"
            for frame, line in traceback.walk_tb(chain.__traceback__)
        ]
        lines += [*positions[:20], "  …", *positions[-40:]] if len(positions) > 60 else positions
        chain = chain.__cause__ or chain.__context__
    return "\n".join(lines) + "\n"


def _code_name(file: str) -> str:
    """A source file without the folders of this machine."""
    parts = Path(file).parts
    for root in ("site-packages", "src"):
        if root in parts:
            return "/".join(parts[len(parts) - parts[::-1].index(root) :])
    return Path(file).name
