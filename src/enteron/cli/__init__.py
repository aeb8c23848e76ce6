"""The command line: one file per command, and one way to fail."""

import sys
from io import TextIOWrapper

import typer

from enteron.cli import (
    bench,
    calibrate,
    check,
    combine,
    compare,
    decode,
    demo,
    evaluate,
    export,
    fleet,
    pack,
    phantom,
    priors,
    read,
    report,
    review,
    serve,
    submission,
    train,
    tune,
    validate,
)
from enteron.cli.failure import fail_with, flush_output

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
app.command()(pack.pack)
app.command()(calibrate.calibrate)
app.command()(read.read)
app.command()(decode.decode)
app.command()(combine.combine)
app.command()(tune.tune)
app.command()(report.report)
app.command()(serve.serve)
app.command()(export.export)
app.command()(evaluate.evaluate)
app.command()(compare.compare)
app.command()(validate.validate)
app.command()(bench.bench)
app.add_typer(fleet.app, name="fleet")
app.add_typer(review.app, name="review")
app.add_typer(priors.app, name="priors")
app.add_typer(submission.app, name="submission")


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
    """Run a command; whatever goes wrong ends in one sentence and exit code 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal may not know every letter of a name
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            app()
        finally:
            flush_output()
    except (SystemExit, GeneratorExit):
        raise
    except KeyboardInterrupt:
        print("enteron: interrupted.", file=sys.stderr)
        sys.exit(130)
    except BaseException as error:
        fail_with(error, sys.argv[1:])
