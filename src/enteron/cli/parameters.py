"""Options that several commands have, declared once."""

from pathlib import Path
from typing import Annotated

import typer

from enteron.inference.accelerator import Accelerator

AcceleratorOption = Annotated[
    Accelerator, typer.Option(help="Where to compute: auto takes a CUDA card if there is one.")
]

RuntimeOption = Annotated[
    str | None,
    typer.Option(
        help="Runtime of the encoder: exact, auto, or a name (default: what suits model and "
        "machine)."
    ),
]

DecoderConfigOption = Annotated[
    Path | None,
    typer.Option(help="TOML file of decoder options, in place of a preset.", readable=False),
]

UserOption = Annotated[
    str | None,
    typer.Option("--name", help="Who you are, in the record (default: your login name)."),
]

NoContextOption = Annotated[
    bool,
    typer.Option(
        "--no-context",
        help="Do not use the scores around in time, to refine those of frames or judge events.",
    ),
]
