"""`enteron review`: what people decided about readings: exchange, checks, removal, users."""

import getpass
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enteron.cli.parameters import UserOption
from enteron.review.formats import ExportFormat, Role

if TYPE_CHECKING:
    from enteron.folders.reading import Reading
    from enteron.review.exports import Reviewed
    from enteron.review.store import ReviewStore

app = typer.Typer(
    no_args_is_help=True,
    help="Reviews: status, export, import, verify, backup, remove, users.",
)
user_app = typer.Typer(no_args_is_help=True, help="Who may use `enteron serve --users FILE`.")
app.add_typer(user_app, name="user")

RootArgument = Annotated[
    Path,
    typer.Argument(help="The folder of readings that `enteron serve` was given.", readable=False),
]
UsersFile = Annotated[Path, typer.Argument(help="The file of users.", readable=False)]


@app.command()
def status(root: RootArgument) -> None:
    """List the studies that have a review: state, findings decided about, who, minutes.

    Example: [bold]enteron review status readings[/bold]
    """
    from enteron.cli.console import console, markup, table
    from enteron.labels import FINDINGS

    with _store(root) as store:
        rows: list[list[str]] = []
        for study in store.studies():
            state = store.state(study)
            signed = len(state.signatures)
            decisions = [e.decision for e in state.events.values() if e.label in FINDINGS]
            minutes = sum(spent.active for spent in state.times.values()) / 60
            rows.append(
                [
                    study,
                    f"{state.status}{f', version {signed}' if signed else ''}",
                    str(decisions.count("confirmed")),
                    str(decisions.count("rejected")),
                    str(decisions.count("open")),
                    ", ".join(state.readers),
                    f"{minutes:.1f}",
                    (state.last_time or "")[:16].replace("T", " "),
                ]
            )
    if not rows:
        typer.echo("Nobody has reviewed a study here yet.")
        return
    head = ("study", "state", "confirmed", "rejected", "open", "who", "minutes", "last (UTC)")
    listed = table("Reviews", *head)
    for row in rows:
        listed.add_row(*(markup(cell) for cell in row))
    console().print(listed)


@app.command()
def export(
    root: RootArgument,
    out: Annotated[Path, typer.Option(help="Folder to write to.", readable=False)],
    format: Annotated[  # noqa: A002 (the option's name)
        list[ExportFormat] | None, typer.Option(help="What to write; may be given several times.")
    ] = None,
    study: Annotated[
        list[str] | None, typer.Option(help="Only this study; may be given several times.")
    ] = None,
    draft: Annotated[
        bool, typer.Option("--draft", help="What stands now, not the last signed version.")
    ] = False,
    studies: Annotated[
        Path | None,
        typer.Option(
            help="Where the studies lie: `labels` then links them, ready for `enteron train`.",
            readable=False,
        ),
    ] = None,
    video: Annotated[
        str | None, typer.Option(help="Address of the study's video in Label Studio.")
    ] = None,
) -> None:
    """Write reviewed studies for other programs: a folder per study, and one table of labels.

    Formats: json, csv, labels (for `enteron train`), label-studio, fhir, dicom. For research only.
    Example: [bold]enteron review export readings --out out --format csv --format fhir[/bold]
    """
    from enteron.cli.console import plain
    from enteron.errors import EnteronError, quantity
    from enteron.files import make_folder, make_subfolder, write_bytes
    from enteron.locks import folder_lock
    from enteron.review.exports import export_study, reviewed

    formats = list(dict.fromkeys(format or [ExportFormat.JSON, ExportFormat.CSV]))
    with _store(root) as store:
        chosen = _readings(root, store, study)
        items = [reviewed(store, reading, draft=draft) for reading in chosen.values()]
    if studies is not None and ExportFormat.LABELS not in formats:
        raise EnteronError("--studies is for the labels", "add `--format labels`, or leave it out")
    make_folder(out)
    with folder_lock(out):
        files = 0
        for item in items:
            for kind in formats:
                if kind is ExportFormat.LABELS:
                    continue
                for name, content in export_study(item, kind, video=video):
                    write_bytes(make_subfolder(out, item.study) / name, content)
                    files += 1
        if ExportFormat.LABELS in formats:
            files += _write_labels(out, items, studies)
    unsigned = [item.study for item in items if not item.is_signed]
    counts = f"{quantity(files, 'file')} of {quantity(len(items), 'study', 'studies')}"
    typer.echo(f"Wrote {counts} to {plain(str(out))}. For research only, not for diagnosis.")
    if unsigned:
        typer.echo(f"Not signed: {', '.join(unsigned[:10])}{', …' if len(unsigned) > 10 else ''}.")


def _write_labels(out: Path, items: "list[Reviewed]", studies: Path | None) -> int:
    """Write `labels/frames.csv`, and links to the studies beside it."""
    from enteron.errors import EnteronError
    from enteron.files import make_subfolder, write_bytes
    from enteron.review.exports.labels import labels_csv

    folder = make_subfolder(out, "labels")
    write_bytes(folder / "frames.csv", labels_csv(items))
    if studies is None:
        typer.echo(
            "To train on labels/frames.csv, put each study beside it under its id (a folder of "
            "frames, or a video), or export with --studies FOLDER."
        )
        return 1
    from enteron.folders.reading import content_of
    from enteron.reading import studies_under
    from enteron.study import open_study

    by_id = {found.id: found.path for found in studies_under(studies).studies}
    for found in studies_under(studies, keep_names=True).studies:
        by_id.setdefault(found.id, found.path)
    for item in items:
        path = by_id.get(item.study)
        if path is None:
            raise EnteronError(
                f"study {item.study} is not in '{studies.name}'", "give the folder that holds it"
            )
        with open_study(path, study_id=item.study) as opened:
            content_of(item.reading, opened)  # refuses another study under the same name
        link = folder / (item.study if path.is_dir() else f"{item.study}{path.suffix}")
        target = os.path.relpath(path.resolve(), folder.resolve())
        if link.is_symlink():
            link.unlink()
        elif link.exists():
            raise EnteronError(f"'{link.name}' is in the way", "move it, or give another folder")
        link.symlink_to(target)
    return 1


@app.command(name="import")
def import_(
    root: RootArgument,
    file: Annotated[
        Path, typer.Argument(help="What Label Studio exported, as JSON.", readable=False)
    ],
    user: UserOption = None,
) -> None:
    """Take corrections made in Label Studio into the reviews.

    A region that was kept confirms its event; one that was changed relabels or trims it; one that
    is gone rejects it; a new one adds an event. Importing twice changes nothing.
    Example: [bold]enteron review import readings project-1.json[/bold]
    """
    from enteron.errors import quantity
    from enteron.review.exports.label_studio import corrections_as_actions, read_corrections
    from enteron.review.store import opening

    corrections = read_corrections(file)
    with _store(root, create=True) as store:
        readings = _readings(root, None, list(corrections))
        for study, regions in corrections.items():
            reading = readings[study]
            machine = opening(reading)
            state = store.state(study, machine)
            actions = corrections_as_actions(state, reading.stored_axis, regions)
            for action in actions:
                version = store.state(study, machine).version
                store.append(study, _user(user), action, expected=version, opening=machine)
            typer.echo(f"Study {study}: {quantity(len(actions), 'decision')} recorded.")


@app.command()
def verify(
    root: RootArgument,
    head: Annotated[
        str | None, typer.Option(help="A head noted earlier, which the record must contain.")
    ] = None,
) -> None:
    """Check the whole record: every hash, every link, every action.

    Prints the head of the record. Note it elsewhere: with --head the next check also notices rows
    that were cut off at the end. Example: [bold]enteron review verify readings[/bold]
    """
    from enteron.errors import EnteronError, quantity
    from enteron.review.record import Head

    with _store(root) as store:
        found = store.verify(None if head is None else Head.parse(head))
    if found.problems:
        for problem in found.problems[1:]:
            typer.echo(f"{problem}.", err=True)
        raise EnteronError(
            f"the record of reviews does not verify: {found.problems[0]}",
            "keep the file as it is for whoever looks into it, and restore a backup",
        )
    removed = f", {found.removed} of them emptied by removals" if found.removed else ""
    typer.echo(
        f"The record holds: {quantity(found.rows, 'row')}{removed}, "
        f"{quantity(found.studies, 'study', 'studies')}."
    )
    typer.echo(f"Head: {found.head}")


@app.command()
def backup(
    root: RootArgument,
    out: Annotated[Path, typer.Option(help="The file to write; a new one.", readable=False)],
) -> None:
    """Copy all reviews into one file, while people may go on reviewing.

    The copy is checked. To restore it, stop `enteron serve` and put it in place of reviews.sqlite
    (remove reviews.sqlite-wal and -shm). Example: [bold]enteron review backup readings --out
    /backup/reviews.sqlite[/bold]
    """
    from enteron.cli.console import plain
    from enteron.files import writing

    with _store(root) as store, writing(out):
        head = store.backup(out)
    typer.echo(f"Wrote {plain(str(out))}. Head: {head}")


@app.command()
def remove(
    root: RootArgument,
    study: Annotated[
        str | None, typer.Argument(help="The study whose reviews are removed.")
    ] = None,
    older_than: Annotated[
        int | None,
        typer.Option(min=1, help="Instead of a study: all that nobody touched for so many days."),
    ] = None,
    user: UserOption = None,
    reason: Annotated[str, typer.Option(help="Why, for the record.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove all reviews of a study, or of old ones. Empty rows and a note of who and when stay.

    Readings, exports and backups are files of their own and stay.
    Examples: [bold]enteron review remove readings 12[/bold],
    [bold]enteron review remove readings --older-than 3650[/bold]
    """
    from enteron.errors import EnteronError, quantity

    if (study is None) == (older_than is None):
        raise EnteronError(
            "it is not clear what is to be removed", "name a study, or give --older-than DAYS"
        )
    with _store(root) as store:
        chosen = [study] if study is not None else _untouched(store, older_than or 0)
        if study is not None and study not in store.studies():
            raise EnteronError(
                f"there is no review of study {study[:100]}",
                "`enteron review status` lists the studies that have one",
            )
        if not chosen:
            typer.echo(f"Every review was touched within {older_than} days.")
            return
        named = ", ".join(chosen[:10]) + (", …" if len(chosen) > 10 else "")
        what = quantity(len(chosen), "study", "studies")
        if not yes and not typer.confirm(f"Remove all reviews of {what} ({named}) for good?"):
            typer.echo("Nothing was removed.")
            return
        rows = sum(store.remove(name, _user(user), reason) for name in chosen)
    typer.echo(f"Removed {quantity(rows, 'action')} of {what} ({named}). Backups still hold them.")


def _untouched(store: "ReviewStore", days: int) -> list[str]:
    """Studies whose last action is older than so many days."""
    from datetime import UTC, datetime, timedelta

    limit = (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="milliseconds")
    return [name for name in store.studies() if (store.state(name).last_time or "") < limit]


# ---- users


@user_app.command()
def add(
    file: UsersFile,
    name: Annotated[str, typer.Argument(help="The user's name.")],
    role: Annotated[Role, typer.Option(help="A reader decides and signs, a viewer only looks.")] = (
        Role.READER
    ),
) -> None:
    """Add a user, or give one another password or role. The password is asked for.

    Without a terminal it is the first line of the input.
    Example: [bold]enteron review user add users.json anna[/bold]
    """
    import sys

    from enteron.locks import folder_lock
    from enteron.review.users import UserFile

    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    with folder_lock(file.resolve().parent):
        users = UserFile.load(file).with_user(name, password, role)
        users.save(file)
    typer.echo(f"{name} is a {role.value} now ({len(users.users)} in {file.name}).")


@user_app.command(name="remove")
def remove_user(
    file: UsersFile, name: Annotated[str, typer.Argument(help="The user's name.")]
) -> None:
    """Remove a user; what they decided stays in the record.

    Example: [bold]enteron review user remove users.json anna[/bold]
    """
    from enteron.locks import folder_lock
    from enteron.review.users import UserFile

    with folder_lock(file.resolve().parent):
        UserFile.load(file).without(name).save(file)
    typer.echo(f"{name} was removed from {file.name}.")


@user_app.command(name="list")
def list_users(file: UsersFile) -> None:
    """List the users of a file and their roles.

    Example: [bold]enteron review user list users.json[/bold]
    """
    from enteron.review.users import UserFile

    for name, user in sorted(UserFile.load(file).users.items()):
        typer.echo(f"{name}  {user.role.value}")


# ---- parts


def _store(root: Path, *, create: bool = False) -> "ReviewStore":
    from enteron.errors import EnteronError
    from enteron.review.store import REVIEWS, ReviewStore

    if not root.is_dir():
        raise EnteronError(f"there is no folder '{root.name}'", "give a folder of readings")
    return ReviewStore(root / REVIEWS, create=create)


def _readings(
    root: Path, store: "ReviewStore | None", studies: list[str] | None
) -> "dict[str, Reading]":
    """The readings of the chosen studies, or of all that have a review."""
    from enteron.errors import EnteronError, nearest
    from enteron.folders.reading import load_reading
    from enteron.serve.catalogue import Catalogue

    entries = Catalogue(root).listing().entries
    wanted = studies or ([] if store is None else list(store.studies()))
    if not wanted:
        raise EnteronError("nobody has reviewed a study here", "review one with `enteron serve`")
    readings: dict[str, Reading] = {}
    for study in wanted:
        if study not in entries:
            hint = nearest(study, entries) if entries else "give the folder of readings"
            raise EnteronError(f"there is no reading of study {study[:100]} here", hint)
        readings[study] = load_reading(entries[study].folder)
    return readings


def _user(name: str | None) -> str:
    return getpass.getuser() if name is None else name
