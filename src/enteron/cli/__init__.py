"""The command line: one file per command, and one way to fail."""

import sys

import typer

from enteron.cli import (
    bench,
    calibrate,
    check,
    compare,
    decode,
    demo,
    evaluate,
    export,
    phantom,
    priors,
    read,
    report,
    train,
    tune,
    validate,
)
from enteron.errors import EnteronError

app = typer.Typer(
    name="enteron",
    help="An open reader for video capsule endoscopy: from a study to events in time. "
    "For research, not for diagnosis.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo.demo)
app.command()(phantom.phantom)
app.command()(check.check)
app.command()(train.train)
app.command()(calibrate.calibrate)
app.command()(read.read)
app.command()(decode.decode)
app.command()(tune.tune)
app.command()(report.report)
app.command()(export.export)
app.command()(evaluate.evaluate)
app.command()(compare.compare)
app.command()(validate.validate)
app.command()(bench.bench)
app.add_typer(priors.app, name="priors")


def version(value: bool) -> None:
    """Print the version and exit."""
    if value:
        from enteron import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def options(
    show_version: bool = typer.Option(
        False, "--version", callback=version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Options of every command."""


def main() -> None:
    """Run a command; bad input ends in one sentence and exit code 1, never in a traceback."""
    try:
        app()
    except EnteronError as error:
        fail(str(error))
    except OSError as error:
        # An error that no stage foresaw. Only the file's name: paths may name patients.
        name = str(error.filename).rsplit("/", 1)[-1] if error.filename else "a file"
        fail(f"'{name}' cannot be used ({error.strerror or error}); check it and run again.")
    except KeyboardInterrupt:
        print("enteron: interrupted.", file=sys.stderr)
        sys.exit(130)


def fail(sentence: str) -> None:
    """Print the sentence to standard error and exit with 1."""
    print(f"enteron: {sentence}", file=sys.stderr)
    sys.exit(1)
