"""`enteron bench`: the benchmarks of the source checkout."""

import ast
import runpy
import sys
from pathlib import Path
from typing import Annotated

import typer

from enteron.errors import EnteronError, nearest


def bench(
    name: Annotated[str | None, typer.Argument(help="A benchmark; none lists them.")] = None,
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Passed on to the benchmark.")
    ] = None,
) -> None:
    """Run a benchmark: ratios within one run, medians of several.

    Example: [bold]enteron bench metrics[/bold]
    """
    folder = _folder()
    benchmarks = {path.stem: path for path in sorted(folder.glob("[a-z]*.py"))}
    if name is None:
        for stem, path in benchmarks.items():
            purpose = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            typer.echo(f"{stem:20} {purpose.splitlines()[0] if purpose else ''}")
        return
    if name not in benchmarks:
        raise EnteronError(f"there is no benchmark '{name}'", nearest(name, benchmarks))
    # Benchmarks measure against the literal implementations that the tests hold.
    sys.path.insert(0, str(folder.parent))
    sys.argv = [f"enteron bench {name}", *(arguments or [])]
    runpy.run_path(str(benchmarks[name]), run_name="__main__")


def _folder() -> Path:
    """Find the folder of the benchmarks, which the installed package does not contain."""
    for root in (Path.cwd(), Path(__file__).parents[3]):
        if (root / "benchmarks").is_dir() and (root / "src" / "enteron").is_dir():
            return root / "benchmarks"
    raise EnteronError(
        "the benchmarks are not part of the installed package",
        "run this from a source checkout of enteron",
    )
