"""`enteron priors fit`: statistics of annotated studies, for the phantom and the decoder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Statistics of annotated studies.", no_args_is_help=True)

GALAR_STRIDES = ("1-38=5", "39-60=1", "61-80=5")
"""Galar stores every fifth frame of studies 1-38 and 61-80, and every frame of 39-60."""


@app.callback()
def _group() -> None:
    """Statistics of annotated studies."""  # keeps `fit` a subcommand while it is the only one


@app.command()
def fit(
    truth: Annotated[
        Path, typer.Argument(help="Official JSON of events in row numbers.", readable=False)
    ],
    out: Annotated[Path, typer.Option(help="File to write the priors to.", readable=False)],
    stride_of: Annotated[
        list[str] | None,
        typer.Option(
            metavar="IDS=N",
            help="Original frames per stored row, as 7=5 or 39-60=1; repeat it. "
            "Without it: as Galar stores its 80 studies.",
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Where the annotation comes from; stored in the file.")
    ] = None,
    published: Annotated[
        bool, typer.Option(help="Prefer the published figures of all 80 Galar studies where known.")
    ] = True,
) -> None:
    """Fit priors to annotated studies.

    `enteron phantom --priors FILE` draws studies from them. For studies other than Galar's add
    --no-published, or Galar's figures are used for the presence of labels.

    Example: enteron priors fit events.json --out priors.json
    """
    from enteron.datasets.submission import read_events
    from enteron.priors import save_priors
    from enteron.priors.fit import fit_priors
    from enteron.types import Annotation, Unit

    annotations: list[Annotation] = read_events(truth, Unit.INDEX)
    strides = _strides([a.study for a in annotations], stride_of or GALAR_STRIDES)
    origin = f"{truth.name} ({len(annotations)} studies)" if source is None else source
    save_priors(fit_priors(annotations, strides, origin, published), out)
    typer.echo(f"{out.name}: priors of {len(annotations)} studies")


def _strides(studies: list[str], rules: Sequence[str]) -> dict[str, int]:
    """The stride of each study that a rule names; `39-60=1` names a range, `a=5` one study."""
    from enteron.errors import ConfigError

    strides: dict[str, int] = {}
    for rule in rules:
        names, _, number = rule.rpartition("=")
        if not names or not _is_count(number) or int(number) < 1:
            raise ConfigError(
                f"--stride-of {rule} is not understood",
                "write studies, '=' and a whole number, as 39-60=1",
            )
        first, dash, last = names.partition("-")
        numbers = range(0)
        if dash and _is_count(first) and _is_count(last):
            numbers = range(int(first), int(last) + 1)
        for study in studies:
            if study == names or (_is_count(study) and int(study) in numbers):
                strides[study] = int(number)
    return strides


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19
