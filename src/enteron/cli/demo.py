"""`enteron demo`: the whole story on synthetic studies."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from enteron.demo import Row, Told
    from enteron.progress import Progress


def demo(
    out: Annotated[Path, typer.Option(help="Folder for studies, model and readings.")] = Path(
        "enteron-demo"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Another seed, other studies.")] = 7,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few small studies: to see that it runs, not how well.")
    ] = False,
) -> None:
    """Draw studies, train, calibrate, read studies of a device never seen, score, report.

    Takes some minutes on two cores and needs nothing but the package. Run again, it keeps what it
    made. Example: [bold]enteron demo --out demo[/bold]
    """
    from enteron.demo import DemoOptions, demonstrate

    options = DemoOptions(seed=seed)
    if quick:
        options = DemoOptions(seed=seed, studies=6, frames=50, unseen=2, unseen_frames=50)
    typer.echo(
        f"{options.studies} synthetic studies of two devices to learn from, {options.unseen} of a "
        "third device to read.\nNobody swallowed these capsules: what is learnt here says nothing "
        "about patients."
    )
    begin = time.perf_counter()
    told = demonstrate(out, options, _Teller())
    _show(told)
    typer.echo(f"\nAll of it took {time.perf_counter() - begin:.0f} s.")
    typer.echo(f"Look at {out.name}/readings/{told.reading.study}/report.html in a browser.")


class _Teller:
    """Tells the chapters, and shows bars for a terminal."""

    def __init__(self) -> None:
        self._number = 0

    def chapter(self, title: str) -> None:
        self._number += 1
        typer.echo(f"\n{self._number}. {title}")

    def stage(self, name: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        from enteron.cli.read import Bars

        return Bars().stage(name, total)

    def training_progress(self) -> "Progress":
        from enteron.cli.console import RichProgress

        return RichProgress()

    def counted(self, sizes: Iterator[int], total: int, what: str) -> None:
        from enteron.cli.console import counted

        for _ in counted(sizes, total, what, "frames"):
            pass


def _show(told: "Told") -> None:
    from enteron.cli.console import console
    from enteron.cli.read import show

    typer.echo()
    show(told.reading)
    out = console()
    out.print(_table(told.rows))
    low, high = told.shortening
    out.print(
        f"[yellow]Note:[/yellow] these studies are {low:.0f} to {high:.0f} times shorter than real "
        "ones. Constants counted in rows were divided by each study's own factor, for every "
        "decoder alike."
    )
    out.print(
        "[dim]Official mAP, all labels and those present in the truth, 95 % intervals over "
        "studies. A label that a study does not show scores 1 when nothing is predicted for it: "
        "hence the empty file's score. Oracle: the true frame labels through transit.[/dim]"
    )


def _table(rows: "tuple[Row, ...]"):  # noqa: ANN202 (rich's table, imported lazily)
    import numpy as np

    from enteron.cli.console import number, table, with_interval

    studies = len(rows[0].evaluation.studies)
    made = table(
        f"{studies} unseen studies, each decoded in several ways",
        "decoder", "mAP at 0.5", "at 0.95", "present labels, 0.5", "region events a study",
        "region onset, median error",
    )  # fmt: skip
    for row in rows:
        found = row.evaluation
        half, strict = found.official
        errors = np.abs(found.borders.error)
        errors = errors[~np.isnan(errors)]
        made.add_row(
            row.name,
            with_interval(float(half.studies.mean()), found.bootstrap.mean(half.studies)),
            number(float(strict.studies.mean())),
            with_interval(
                float(np.nanmean(half.present_studies)), found.bootstrap.mean(half.present_studies)
            ),
            number(row.region_events, 1),
            f"{np.median(errors):.0f} frames" if errors.size else "-",
        )
    return made
