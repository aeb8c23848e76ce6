"""`enteron fleet`: many studies, one command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enteron.cli.decode import Preset, parse_weights
from enteron.cli.parameters import AcceleratorOption, DecoderConfigOption, RuntimeOption

if TYPE_CHECKING:
    from enteron.fleet.discovery import Task
    from enteron.fleet.queue import FleetResult
    from enteron.fleet.work import Outcome
    from enteron.reading import ReadOptions

app = typer.Typer(
    help="Many studies: a queue that survives, a catalogue, a hot folder.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

OutOption = Annotated[
    Path, typer.Option(help="Folder of the readings, one folder each.", readable=False)
]
ModelOption = Annotated[
    Path | None,
    typer.Option(
        help="Model folder, as `enteron train` makes it (default: the model in the package).",
        readable=False,
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(help="Processes that read, one study each (default: as cores and memory allow)."),
]
AttemptsOption = Annotated[
    int, typer.Option(help="A study that failed so often is quarantined.", min=1)
]
PresetOption = Annotated[Preset, typer.Option(help="How scores become events.")]
TtaOption = Annotated[
    bool, typer.Option("--tta/--no-tta", help="Score the mirror image of each clip as well.")
]
DeviceOption = Annotated[
    str | None, typer.Option(help="Capsule system of these studies, if known.")
]
WeightOption = Annotated[
    list[str] | None,
    typer.Option(help="Importance of a finding in suspicious.json, as polyp=3 (default: 1)."),
]
DeviceTextOption = Annotated[
    bool,
    typer.Option(
        "--device-text", help="Keep what the recorder wrote into the pictures, and title cards."
    ),
]
KeepNamesOption = Annotated[
    bool,
    typer.Option(
        "--keep-names",
        help="Take names of folders and files as ids. Pages and files then contain them.",
    ),
]
DropOption = Annotated[
    bool,
    typer.Option(
        "--drop-embeddings",
        help="Delete embeddings.npy, most of a reading's size, when a reading is finished.",
    ),
]
ReserveOption = Annotated[
    int, typer.Option(help="MiB of the disk that stay free: below, the queue pauses.", min=0)
]
RayOption = Annotated[
    str | None,
    typer.Option(
        help="Read on a Ray cluster: its address, auto (the one of this machine), or local."
    ),
]


@app.command()
def run(
    root: Annotated[
        str,
        typer.Argument(
            help="A folder with studies, in any layout that `read` takes, or a URL for fsspec."
        ),
    ],
    out: OutOption,
    model: ModelOption = None,
    workers: WorkersOption = None,
    attempts: AttemptsOption = 2,
    retry: Annotated[
        bool, typer.Option("--retry", help="Take up quarantined studies again.")
    ] = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Read again what was read with another model or other options."
        ),
    ] = False,
    ray: RayOption = None,
    split_above: Annotated[
        int, typer.Option(help="With --ray: longer studies (frames) are shared by workers.", min=1)
    ] = 20_000,
    preset: PresetOption = Preset.TRANSIT,
    config: DecoderConfigOption = None,
    tta: TtaOption = True,
    runtime: RuntimeOption = None,
    accelerator: AcceleratorOption = "auto",
    device: DeviceOption = None,
    weight: WeightOption = None,
    device_text: DeviceTextOption = False,
    keep_names: KeepNamesOption = False,
    drop_embeddings: DropOption = False,
    reserve: ReserveOption = 512,
) -> None:
    """Read every study under a folder, in parallel; start it again to go on.

    What is finished is kept, what fails is tried again and then quarantined, and one bad study
    never stops the others. Exit code 1 if any study was not read.
    Example: [bold]enteron fleet run archive --out readings[/bold]
    """
    from enteron.cli.console import RichProgress
    from enteron.fleet.run import FleetOptions, run_fleet
    from enteron.folders.model import default_model

    options = _read_options(preset, config, tta, runtime, accelerator, device, weight, device_text)
    fleet = FleetOptions(
        workers=workers,
        attempts=attempts,
        retry=retry,
        replace=replace,
        ray=ray,
        split_above=split_above,
        keep_names=keep_names,
        keep_embeddings=not drop_embeddings,
        reserve_mib=reserve,
    )
    progress = RichProgress()
    result = run_fleet(
        root,
        out,
        model=default_model() if model is None else model,
        options=options,
        fleet=fleet,
        progress=progress,
        on_outcome=lambda task, outcome: progress.message(_line(task, outcome)),
    )
    _show_result(result, out)
    if not result.complete:
        raise typer.Exit(1)


def _read_options(
    preset: Preset,
    config: Path | None,
    tta: bool,
    runtime: str | None,
    accelerator: AcceleratorOption,
    device: str | None,
    weight: list[str] | None,
    device_text: bool,
) -> "ReadOptions":
    from enteron.decoding import DecodeOptions
    from enteron.options import load_options
    from enteron.reading import ReadOptions

    return ReadOptions(
        preset=preset.value,
        decoding=None if config is None else load_options(DecodeOptions, config),
        views="flip" if tta else "none",
        runtime=runtime,
        accelerator=accelerator,
        mask_text=not device_text,
        device=device,
        weights=parse_weights(weight),
    )


def _line(task: "Task", outcome: "Outcome") -> str:
    """One line of the terminal about a study."""
    if outcome.status == "read":
        return (
            f"{task.name}: read as {outcome.study}, {outcome.frames:,} frames in "
            f"{outcome.seconds:.1f} s"
        )
    if outcome.status == "kept":
        return f"{task.name}: finished before as {outcome.study}"
    if outcome.status == "busy":
        return f"{task.name}: will be looked at again: {outcome.sentence}"
    what = "quarantined" if outcome.quarantined else "failed, will be tried again"
    if outcome.status == "other":
        what = "not read"
    return f"{task.name}: {what}: {outcome.sentence}"


def _show_result(result: "FleetResult", out: Path) -> None:
    from enteron.cli.console import plain
    from enteron.errors import quantity

    counts = result.counts
    words = {
        "read": "read",
        "kept": "finished before",
        "other": "of another model or other options",
        "failed": "failed",
        "quarantined": "quarantined",
    }
    parts = [f"{counts[status]:,} {word}" for status, word in words.items() if counts.get(status)]
    typer.echo(f"{quantity(len(result.tasks), 'study', 'studies')}: {', '.join(parts)}.")
    most = result.peak_memory >> 20
    memory = f"; a worker took at most {most:,} MiB of memory" if most else ""
    typer.echo(f"Encoded {quantity(result.encoded, 'frame')} in this run{memory}.")
    for failure in result.quarantined:
        task = result.tasks.get(failure.key)
        name = failure.label if task is None else task.name
        typer.echo(f"  {plain(name)}: {plain(failure.sentence)}", err=True)
    if result.quarantined:
        typer.echo(
            "Quarantined studies are tried again with --retry, or when their files change.",
            err=True,
        )
    if counts.get("other"):
        typer.echo(
            "Some readings are of another model or other options and were left alone: give "
            "--replace to read those studies again, or another folder.",
            err=True,
        )
    typer.echo(f"Open {plain(str(out / 'index.html'))} in a browser. Not a diagnosis.")


@app.command()
def watch(
    inbox: Annotated[
        Path, typer.Argument(help="The folder that studies are copied into.", readable=False)
    ],
    out: OutOption,
    model: ModelOption = None,
    settle: Annotated[
        float, typer.Option(help="Seconds without a change after which a study is whole.", min=0)
    ] = 60.0,
    marker: Annotated[
        str | None,
        typer.Option(
            help="A file that says that a study is whole, as .done: STUDY.done beside it, or that "
            "name inside its folder. Then no time is waited."
        ),
    ] = None,
    done: Annotated[
        Path | None,
        typer.Option(help="Move studies here when they are read (default: leave them)."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when nothing is left to read.")] = False,
    workers: WorkersOption = None,
    attempts: AttemptsOption = 2,
    ray: RayOption = None,
    preset: PresetOption = Preset.TRANSIT,
    config: DecoderConfigOption = None,
    tta: TtaOption = True,
    runtime: RuntimeOption = None,
    accelerator: AcceleratorOption = "auto",
    device: DeviceOption = None,
    weight: WeightOption = None,
    device_text: DeviceTextOption = False,
    keep_names: KeepNamesOption = False,
    drop_embeddings: DropOption = False,
    reserve: ReserveOption = 512,
) -> None:
    """Read studies as they arrive in a folder, until it is stopped.

    A study is read when it has not changed for some seconds, or when a marker file says that it is
    whole. It can be killed and started again at any time.
    Example: [bold]enteron fleet watch inbox --out readings[/bold]
    """
    from enteron.cli.console import RichProgress
    from enteron.fleet.run import FleetOptions
    from enteron.fleet.watch import WatchOptions, watch_inbox
    from enteron.folders.model import default_model

    options = _read_options(preset, config, tta, runtime, accelerator, device, weight, device_text)
    fleet = FleetOptions(
        workers=workers,
        attempts=attempts,
        ray=ray,
        keep_names=keep_names,
        keep_embeddings=not drop_embeddings,
        reserve_mib=reserve,
    )
    progress = RichProgress()
    watch_inbox(
        inbox,
        out,
        model=default_model() if model is None else model,
        options=options,
        fleet=fleet,
        watch=WatchOptions(settle=settle, marker=marker, done=done, once=once),
        progress=progress,
        on_outcome=lambda task, outcome: progress.message(_line(task, outcome)),
    )


@app.command()
def status(
    folder: Annotated[Path, typer.Argument(help="Folder of readings.", readable=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print figures as JSON.")] = False,
) -> None:
    """How far a fleet is: studies by state, what is quarantined and why.

    Example: [bold]enteron fleet status readings[/bold]
    """
    from enteron.cli.console import console, markup, table
    from enteron.files import json_text
    from enteron.fleet.catalogue import refresh_catalogue
    from enteron.fleet.figures import fleet_figures

    catalogue = refresh_catalogue(folder)
    figures = fleet_figures(catalogue)
    if as_json:
        typer.echo(json_text(figures.as_json()))
        return
    out = console()
    result = table("Studies", "state", "studies")
    for state, count in figures.states.items():
        result.add_row(state, f"{count:,}")
    out.print(result)
    for line in figures.sentences():
        out.print(markup(line))
    stopped = [row for row in figures.stopped if row.state != "unfinished"]
    if stopped:
        reasons = table("Not read", "study", "state", "attempts", "reason")
        reasons.columns[3].justify = "left"
        for row in stopped[:30]:
            reasons.add_row(
                markup(row.study), row.state, str(row.attempts or "-"), markup(row.reason)
            )
        out.print(reasons)
        if len(stopped) > 30:
            out.print(
                f"... and {len(stopped) - 30:,} more: fleet query {markup(folder.name)} "
                "\"SELECT study, reason WHERE state = 'quarantined'\""
            )


@app.command()
def query(
    folder: Annotated[Path, typer.Argument(help="Folder of readings.", readable=False)],
    sql: Annotated[
        str | None, typer.Argument(help="A SELECT over the tables studies and events.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write the answer to this CSV file.", readable=False)
    ] = None,
    columns: Annotated[bool, typer.Option("--columns", help="List tables and columns.")] = False,
) -> None:
    """Ask the catalogue in SQL; without FROM, the table of studies is meant.

    Columns are listed by --columns and explained in docs/scale.md.
    Example: [bold]enteron fleet query readings "SELECT study, angiectasia WHERE angiectasia > 0.8
    AND complete"[/bold]
    """
    from enteron.cli.console import console, markup, table
    from enteron.errors import EnteronError
    from enteron.files import write_bytes
    from enteron.fleet.catalogue import refresh_catalogue
    from enteron.fleet.tables import run_sql

    catalogue = refresh_catalogue(folder)
    tables = {"studies": catalogue.studies, "events": catalogue.events}
    if columns:
        for name, content in tables.items():
            typer.echo(f"{name}: " + ", ".join(content.columns))
        return
    if sql is None:
        raise EnteronError("there is no query", "give one, or --columns to list what can be asked")
    answer = run_sql(sql, tables)
    nested = [name for name, kind in answer.schema.items() if kind.is_nested()]
    answer = answer.drop(nested)  # lists of numbers, which neither a table nor a CSV can hold
    if csv is not None:
        write_bytes(csv, answer.write_csv().encode())
        typer.echo(f"{answer.height:,} rows in {csv.name}.")
        return
    result = table("", *answer.columns)
    for row in answer.head(200).iter_rows():
        result.add_row(*("-" if value is None else markup(_cell(value)) for value in row))
    console().print(result)
    more = ", the first 200 are shown; --csv FILE writes all" if answer.height > 200 else ""
    typer.echo(f"{answer.height:,} rows{more}.")


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
