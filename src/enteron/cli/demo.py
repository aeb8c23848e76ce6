"""`enteron demo`: what there is, on data made on the spot."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path | None, typer.Option(help="Keep the files in this folder.")] = None,
) -> None:
    """Make a small truth and a prediction, score and explain them.

    Example: [bold]enteron demo --out demo[/bold]
    """
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            _tell(Path(folder))
        return
    out.mkdir(parents=True, exist_ok=True)
    _tell(out)
    typer.echo(f"The files are in {out.name}: score them again with enteron evaluate.")


def _tell(folder: Path) -> None:
    from enteron.cli.evaluate import print_figures
    from enteron.galar.submission import read_submission, write_submission
    from enteron.metrics.evaluation import evaluate
    from enteron.metrics.summary import summarise
    from enteron.types import Annotation, Event, FrameUnit, Segment, Unit

    truth: Annotation[FrameUnit] = Annotation(
        "demo",
        Unit.FRAME,
        (
            Segment(0, 40, ("mouth",)),
            Segment(40, 90, ("esophagus",)),
            Segment(90, 2_500, ("stomach",)),
            Segment(2_500, 9_000, ("small intestine",)),
            Segment(9_000, 9_012, ("small intestine", "angiectasia")),
            Segment(9_012, 20_000, ("small intestine",)),
            Segment(20_000, 20_030, ("small intestine", "blood")),
            Segment(20_030, 30_000, ("small intestine",)),
            Segment(30_000, 40_000, ("colon",)),
        ),
    )
    prediction: Annotation[FrameUnit] = Annotation.from_events(
        "demo",
        Unit.FRAME,
        [
            Event(90, 2_510, "stomach", 0.98),
            Event(2_510, 30_040, "small intestine", 0.97),
            Event(30_040, 40_000, "colon", 0.96),
            Event(20_004, 20_033, "blood", 0.8),
            Event(9_003, 9_020, "angiectasia", 0.7),
            Event(15_000, 15_008, "ulcer", 0.6),
        ],
    )
    write_submission(folder / "truth.json", [truth])
    write_submission(folder / "prediction.json", [prediction])
    typer.echo(
        "A made-up study of 40,000 frames: five regions, a vascular lesion, a bleed. A reader\n"
        "found three regions and both lesions, but also one ulcer that is not there.\n"
    )
    files = (read_submission(folder / name) for name in ("truth.json", "prediction.json"))
    print_figures(summarise(evaluate(next(files), next(files))))
    typer.echo(
        "\nHow to read it. The official score is not far above that of an empty file, although\n"
        "the reader found what matters. The small intestine is one stay, but the truth cuts it\n"
        "at both lesions: the whole stay covers none of its five pieces by half (compare\n"
        "'merged'). The false ulcer costs as much as a missed region. Recall and false alarms\n"
        "per hour say what the physician would have seen."
    )
