"""`enteron read`: a study and a model to events and a page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enteron.cli.decode import Preset, parse_weights
from enteron.cli.parameters import (
    AcceleratorOption,
    DecoderConfigOption,
    NoContextOption,
    RuntimeOption,
)
from enteron.inference.spacing import NeighbourStep
from enteron.inference.views import ViewSet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from enteron.cli.console import RichProgress
    from enteron.folders.reading import Reading, Redundant
    from enteron.folders.studies_table import StudyRow
    from enteron.profile import Profile
    from enteron.reading import FoundStudies, Reader
    from enteron.types import Annotation


def read(
    context: typer.Context,
    study: Annotated[
        Path | None,
        typer.Argument(
            help="A folder of frames, a video, or a root with several studies.", readable=False
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Model folder, as `enteron train` makes it (default: the model in the package).",
            readable=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the reading (default: ID-reading, here).", readable=False),
    ] = None,
    preset: Annotated[Preset, typer.Option(help="How scores become events.")] = Preset.TRANSIT,
    config: DecoderConfigOption = None,
    views: Annotated[
        ViewSet | None,
        typer.Option(
            help="Mirrored and turned copies of each frame whose scores are averaged: none, the "
            "mirror image, both mirror axes (4 views), or all eight (default: flip)."
        ),
    ] = None,
    tta: Annotated[
        bool | None,
        typer.Option("--tta/--no-tta", help="Short for --views flip and --views none."),
    ] = None,
    neighbour_step: Annotated[
        NeighbourStep,
        typer.Option(
            help="Frames of a clip: stored neighbours, or as far apart as in most of the model's "
            "training clips."
        ),
    ] = "stored",
    no_context: NoContextOption = False,
    runtime: RuntimeOption = None,
    accelerator: AcceleratorOption = "auto",
    skip_redundant: Annotated[
        bool,
        typer.Option(
            "--skip-redundant",
            help="Encode frames that hardly differ from an earlier one only once.",
        ),
    ] = False,
    coarse: Annotated[
        bool,
        typer.Option(
            "--coarse",
            help="Encode every 24th frame, glance at all others in small, and encode those "
            "that may matter: less than half of the work, and something may be missed.",
        ),
    ] = False,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            help="Read each study within this time: runtime, views and frames to encode follow "
            "from a quick measurement (default: every frame, however long it takes).",
        ),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Show where the time went, and what limits it.")
    ] = False,
    truth: Annotated[
        Path | None,
        typer.Option(
            help="Annotation to compare with on the page: official JSON, or labels.", readable=False
        ),
    ] = None,
    study_id: Annotated[
        str | None,
        typer.Option(
            help="Id of a single study (default: derived from its content, or the name that its "
            "dataset gives it)."
        ),
    ] = None,
    keep_names: Annotated[
        bool,
        typer.Option(
            "--keep-names",
            help="Take names of folders and files as ids. Pages and files then contain them.",
        ),
    ] = False,
    device: Annotated[
        str | None,
        typer.Option(help="Capsule system, if known: a promised recall holds for some only."),
    ] = None,
    weight: Annotated[
        list[str] | None,
        typer.Option(help="Importance of a finding in suspicious.json, as polyp=3 (default: 1)."),
    ] = None,
    device_text: Annotated[
        bool,
        typer.Option(
            "--device-text", help="Keep what the recorder wrote into the pictures, and title cards."
        ),
    ] = False,
    example: Annotated[
        bool,
        typer.Option(
            "--example", help="Without a study: draw one and read it, as `enteron demo` does."
        ),
    ] = False,
) -> None:
    """Read a study: regions, landmarks and findings in time, with a page to look at.

    Writes scores.parquet, events.json, events.csv, suspicious.json, submission.json, files for
    Label Studio, report.html and run.json; of several studies also submission.json, studies.csv
    and index.html. A killed run resumes when it is started again.
    Example: [bold]enteron read study.mp4[/bold], or with a model of your own
    [bold]enteron read study.mp4 --model model[/bold]
    """
    if study is None:
        if not example:
            raise typer.BadParameter(
                "give a study: a folder of frames or a video; or --example to draw one",
                param_hint="'STUDY'",
            )
        _require_example_alone(context)
        from enteron.cli.demo import show_example

        show_example(out or Path("enteron-example"))
        return
    if example:
        raise typer.BadParameter("give either a study or --example", param_hint="'--example'")
    from enteron.cli.console import RichProgress, print_ignored
    from enteron.decoding import DecodeOptions
    from enteron.inference.coarse_to_fine import CoarseOptions
    from enteron.inference.embed import REDUNDANCY_LIMIT
    from enteron.options import load_options
    from enteron.reading import Reader, ReadOptions, studies_under

    if minutes is not None:
        _require_free(
            {"--views": views, "--tta": tta, "--coarse": coarse, "--skip-redundant": skip_redundant}
        )
    decoding = None if config is None else load_options(DecodeOptions, config)
    found = studies_under(study, keep_names=keep_names)
    single = len(found.studies) == 1
    if study_id is not None:
        found = _with_id(found, study_id)
    print_ignored(found.ignored)
    truths = _truths(truth, [each.id for each in found.studies if each.id is not None])
    options = ReadOptions(
        preset=preset.value,
        decoding=decoding,
        views=asked_views(views, tta),
        neighbour_step=neighbour_step,
        context=not no_context,
        runtime=runtime,
        accelerator=accelerator,
        redundancy=REDUNDANCY_LIMIT if skip_redundant else None,
        coarse=CoarseOptions() if coarse else None,
        mask_text=not device_text,
        device=device,
        weights=parse_weights(weight),
    )
    reader = Reader(model, options, minutes=minutes, profile=profile)
    folder = out if out is not None else found.default_folder
    progress = RichProgress()
    if single:
        opened = found.studies[0].open()
        print_ignored(opened.ignored)
        reading = reader.read(opened, folder, truth=truths.get(opened.id), progress=progress)
        show(reading)
        return
    _read_several(reader, found, folder, truths, progress)


def _require_example_alone(context: typer.Context) -> None:
    """Refuse options that the example would not heed."""
    for name in context.params:
        source = context.get_parameter_source(name)
        given = source is not None and source.name == "COMMANDLINE"
        if given and name not in ("example", "out"):
            raise typer.BadParameter(
                f"--example takes --out only, not --{name.replace('_', '-')}: read a study with it",
                param_hint="'--example'",
            )


def _require_free(options: "Mapping[str, object]") -> None:
    """Refuse options that `--minutes` chooses itself."""
    from enteron.errors import ConfigError

    for name, value in options.items():
        if value not in (None, False):
            raise ConfigError(f"--minutes chooses itself what {name} would set", "give one of them")


def asked_views(views: ViewSet | None, tta: bool | None) -> ViewSet:
    """The views that were asked for, by either name."""
    from enteron.errors import ConfigError

    if tta is None:
        return views or "flip"
    short: ViewSet = "flip" if tta else "none"
    if views not in (None, short):
        raise ConfigError(
            f"--views {views} and {'--tta' if tta else '--no-tta'} contradict each other",
            "give one of them",
        )
    return short


def _with_id(found: "FoundStudies", study_id: str) -> "FoundStudies":
    """The single study with the id that was asked for."""
    from dataclasses import replace

    from enteron.errors import StudyError
    from enteron.ids import require_study_id

    require_study_id(study_id, "--study-id", StudyError)
    first, *others = found.studies
    if others:
        raise StudyError(
            f"--study-id names one study, and here are {len(found.studies)}",
            "leave it out, or give the path of one of them",
        )
    return replace(found, studies=(replace(first, id=study_id),))


def _read_several(
    reader: "Reader",
    found: "FoundStudies",
    folder: Path,
    truths: "dict[str, Annotation]",
    progress: "RichProgress",
) -> None:
    """Read every study; those that cannot be read are told at once and again at the end."""
    from enteron.cli.console import plain
    from enteron.files import make_folder
    from enteron.fleet.catalogue import refresh_catalogue
    from enteron.fleet.page import write_fleet_page
    from enteron.folders.reading import Reading
    from enteron.locks import folder_lock
    from enteron.reading import read_each, write_joint_submission

    readings: list[Reading] = []
    failures: list[str] = []
    make_folder(folder)
    with folder_lock(folder):
        for study, result in read_each(reader, found.studies, folder, truths, progress):
            if isinstance(result, Reading):
                readings.append(result)
                show(result)
            else:
                failures.append(f"{study.name}: {result}")
                typer.echo(f"enteron: {plain(failures[-1])}", err=True)
        if not failures:
            write_joint_submission(readings, folder)
            show_studies(readings, folder)
        if readings:
            page = write_fleet_page(folder, refresh_catalogue(folder, store=False))
            typer.echo(f"Open {plain(str(page))} in a browser: all studies at a glance.")
        if not failures:
            return
    count = len(found.studies)
    verb = "was" if len(failures) == 1 else "were"
    typer.echo(f"{len(failures)} of {count} studies {verb} not read:", err=True)
    for sentence in failures:
        typer.echo(f"  {plain(sentence)}", err=True)
    typer.echo(
        f"The others are in {plain(str(folder))}. No submission.json of all studies was written, "
        "since it would not hold them all. Mend these studies or move them away, and run again.",
        err=True,
    )
    raise typer.Exit(1)


def _truths(truth: Path | None, names: list[str]) -> "dict[str, Annotation]":
    """The annotation of the studies to be read, checked before the long work starts."""
    from enteron.datasets.submission import read_truth
    from enteron.errors import LabelError
    from enteron.types import Unit

    if truth is None:
        return {}
    annotations = {annotation.study: annotation for annotation in read_truth(truth, Unit.FRAME)}
    missing = [name for name in names if name not in annotations]
    if missing:
        raise LabelError(
            f"'{truth.name}' has no annotation of study {missing[0]}",
            "give the annotation of the studies that are read, or none; the id of a single study "
            "is set with --study-id, and --keep-names takes names of folders and files as ids",
        )
    return {name: annotations[name] for name in names}


def show(reading: "Reading") -> None:
    """Print what a physician asks first: where the capsule was, and what to look at."""
    from enteron.cli.console import NONE, console, markup, number, table
    from enteron.folders.trust import learnt_from, not_looked_for, other_kind, unlike_study
    from enteron.labels import LABELS, REGIONS

    out = console()
    run = reading.run
    unreadable = 0 if run.unreadable is None else run.unreadable.count
    out.print(
        f"[bold]Study {markup(reading.study)}[/bold]: {run.rows:,} frames, "
        + (f"{unreadable:,} of them unreadable" if unreadable else "all readable")
    )
    if (sentence := learnt_from(run.model)) is not None:
        out.print(f"[yellow]Note:[/yellow] {markup(sentence)}")
    elif run.model is not None:
        out.print(f"[dim]Model:[/dim] {markup(run.model.sentence)}.")
    if run.missing is not None:
        out.print(f"[bold red]Incomplete:[/bold red] {run.missing.sentence}.")
    if (sentence := unlike_study(run)) is not None:
        out.print(f"[bold red]Unlike study:[/bold red] {sentence}")
    if (sentence := other_kind(run)) is not None:
        out.print(f"[yellow]Note:[/yellow] {sentence}")
    for note in run.notes:
        out.print(f"[yellow]Note:[/yellow] {note}.")
    if run.redundant is not None:
        out.print(_redundancy(run.redundant))
    if run.coarse is not None:
        out.print(f"[yellow]Not every frame was looked at:[/yellow] {run.coarse.sentence}.")
    result = table("", "found", "events", "first frame", "last frame", "confidence", "at frame")
    shown = "({})" if run.is_unlike else "{}"
    for label in sorted(reading.counts, key=LABELS.index):
        events = [event for event in reading.events if event.label == label]
        best = max(events, key=lambda event: event.score or 0.0)
        result.add_row(
            f"[bold]{shown.format(label)}[/bold]"
            if label in REGIONS
            else f"  {shown.format(label)}",
            f"{len(events):,}",
            f"{min(event.start for event in events):,}",
            f"{max(event.stop for event in events) - 1:,}",
            shown.format(number(best.score, 2)),
            NONE if label in REGIONS else f"{best.start:,}",
        )
    out.print(result)
    if not reading.events:
        out.print("No events were found.")
    if (sentence := not_looked_for(run.model)) is not None:
        out.print(markup(sentence))
    if not run.is_calibrated:
        out.print(
            "[yellow]Note:[/yellow] the model was never calibrated, so confidences and thresholds "
            "are guesses: run enteron calibrate MODEL DATA."
        )
    if run.training_note is not None:
        out.print(f"[yellow]Note:[/yellow] {run.training_note}.")
    if run.scaling:
        out.print(f"[yellow]Note:[/yellow] {run.scaling}.")
    stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in reading.seconds.items())
    runtime = NONE if run.runtime is None else run.runtime.name
    out.print(f"[dim]Seconds: {stages}. Runtime: {runtime}.[/dim]")
    if run.profile is not None:
        show_profile(run.profile)
    report = markup(str(reading.report))
    out.print(f"Open {report} in a browser. Not a diagnosis.\n", soft_wrap=True)


def show_profile(profile: "Profile") -> None:
    """Where the time of a reading went, and what limits it."""
    from enteron.cli.console import NONE, console, table
    from enteron.profile import BESIDE, PARTS

    out = console()
    result = table("Where the time went", "part", "seconds", "of the time", "per frame, ms")
    for part in PARTS:
        seconds = profile.parts.get(part)
        if seconds is None:
            continue
        beside = part in BESIDE
        result.add_row(
            f"{part} (in threads beside)" if beside else part,
            f"{seconds:.2f}",
            NONE if beside else f"{seconds / max(profile.seconds, 1e-9):.1%}",
            f"{1000 * seconds / max(profile.frames, 1):.2f}",
        )
    result.add_row("rest", f"{profile.rest:.2f}", f"{profile.rest / profile.seconds:.1%}", NONE)
    rate = profile.frames / max(profile.seconds, 1e-9)
    result.add_row("together", f"{profile.seconds:.2f}", "100%", f"{1000 / max(rate, 1e-9):.2f}")
    out.print(result)
    share = profile.encoder_share
    out.print(
        f"{rate:.0f} frames/s; {profile.images:,} pictures encoded"
        + ("" if share is None else f" at {share:.0%} of the GEMM peak of fp32")
        + ("" if profile.peak is None else f" ({profile.peak / 1e9:.0f} GFLOP/s)")
        + f". The limit: {profile.limit}."
    )


def show_studies(readings: "Sequence[Reading]", folder: Path) -> None:
    """Print the table over studies, and where the joint files are."""
    from enteron.cli.console import plain
    from enteron.folders.reading import SUBMISSION
    from enteron.folders.studies_table import STUDIES_TABLE
    from enteron.reading import reading_row

    print_studies([reading_row(reading) for reading in readings])
    typer.echo(
        f"{plain(str(folder / SUBMISSION))} holds all {len(readings)} studies; the table is in "
        f"{STUDIES_TABLE} beside it."
    )


def print_studies(rows: "Sequence[StudyRow]") -> None:
    """The events of each study by label, as the paper lists them."""
    from rich.table import Table

    from enteron.cli.console import NONE, console, markup, number

    result = Table(title="Events of the official file", title_justify="left", header_style="dim")
    for name in ("study", "frames", "events", "minutes"):
        result.add_column(name, justify="left" if name == "study" else "right")
    result.add_column("events by label")
    for row in rows:
        result.add_row(
            markup(row.study),
            NONE if row.frames is None else f"{row.frames:,}",
            f"{row.events:,}",
            number(row.minutes, 1),
            row.distribution or NONE,
        )
    console().print(result)


def _redundancy(redundant: "Redundant") -> str:
    text = f"{redundant.share:.0%} of the frames took the embedding of an earlier frame"
    if redundant.probed:
        text += (
            f"; on {redundant.probed} of them that were encoded all the same, scores differed "
            f"by {redundant.mean_difference:.4f} on average and by "
            f"{redundant.largest_difference:.2f} at most"
        )
    return text + "."
