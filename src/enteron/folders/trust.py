"""What somebody must know before believing a reading: one place for pages and the terminal.

The sentences come from `run.json` alone: what the model learnt from, whether the study looks like
that, and which findings it was never shown to recognise.
"""

from collections.abc import Sequence

from enteron.errors import quantity
from enteron.folders.reading import ModelFacts, RunRecord
from enteron.labels import ANATOMY, FINDINGS, LABELS
from enteron.types import TrainingSource


def drawn_only_labels(model: ModelFacts | None) -> tuple[str, ...]:
    """Labels that drawings alone taught; none where the sources were not recorded."""
    if model is None:
        return ()
    drawn, real = _taught(model.sources, "drawings"), _taught(model.sources, "real frames")
    return tuple(label for label in LABELS if label in drawn and label not in real)


def _taught(sources: Sequence[TrainingSource], kind: str) -> set[str]:
    return {label for source in sources if source.kind == kind for label in source.labels}


def learnt_from(model: ModelFacts | None) -> str | None:
    """A sentence on what the model learnt from; None where that was not recorded."""
    if model is None or not model.sources:
        return None
    name = f"The model '{model.name}'" if model.name else "The model"
    if model.default:
        name = f"{name} (no other was named)"
    drawings = [s for s in model.sources if s.kind == "drawings"]
    others = [s for s in model.sources if s.kind != "drawings"]
    if not others:
        return (
            f"{name} has seen drawings only ({_studies(drawings)}), never a real picture: what it "
            "says about a patient's study means nothing."
        )
    named = f"{', '.join(source.title for source in others)} ({_studies(others)})"
    if not drawings:
        return f"{name} learnt from {named}."
    only = drawn_only_labels(model)
    parts = [_group(only, ANATOMY, "regions and landmarks"), _group(only, FINDINGS, "findings")]
    from_drawings = " and ".join(part for part in parts if part)
    if not from_drawings:
        return f"{name} learnt from {named} and from drawings ({_studies(drawings)})."
    return (
        f"{name} learnt {from_drawings} from drawings only ({_studies(drawings)}), and the rest "
        f"from {named}."
    )


def _group(labels: Sequence[str], group: Sequence[str], name: str) -> str:
    """The name of a group of labels if all of it is among them, else those that are."""
    among = [label for label in group if label in labels]
    if len(among) == len(group):
        return name
    return ", ".join(among)


def _studies(sources: Sequence[TrainingSource]) -> str:
    return quantity(sum(source.studies for source in sources), "study", "studies")


def other_kind(run: RunRecord) -> str | None:
    """A sentence where the study is nearest to drawings, and findings were learnt elsewhere."""
    if run.likeness is None or run.likeness.nearest != "drawings" or run.model is None:
        return None
    taught = _taught(run.model.sources, "drawings")
    unknown = [finding for finding in FINDINGS if finding not in taught]
    if not taught or not unknown:
        return None
    is_like = run.likeness.verdict == "like"
    return (
        f"{'This study looks like' if is_like else 'What it is nearest to are'} drawings, from "
        "which the model never learnt "
        f"{'any finding' if len(unknown) == len(FINDINGS) else ', '.join(unknown)}: what it "
        "reports of that here means nothing."
    )


def not_looked_for(model: ModelFacts | None) -> str | None:
    """A sentence on findings that are off, by the reason for it."""
    unproven = {} if model is None else model.unproven
    if not unproven:
        return None
    groups = [
        f"{', '.join(label for label in unproven if unproven[label] == reason)} ({reason})"
        for reason in dict.fromkeys(unproven.values())
    ]
    return f"Not looked for: {'; '.join(groups)}."


def cautions(run: RunRecord) -> list[str]:
    """What stands above everything else on a page: why this reading may mean nothing."""
    return [said for said in (unlike_study(run), other_kind(run)) if said is not None]


def unlike_study(run: RunRecord) -> str | None:
    """A sentence where the study looks unlike everything that the model knows."""
    if run.likeness is None or not run.is_unlike:
        return None
    nearest = run.likeness.nearest
    distance = "" if nearest is None else f" ({run.likeness.distances[nearest]:.2f} of the limit)"
    return (
        "This study looks unlike everything that the model was trained and tested on"
        f"{distance}: its regions are not to be relied on, and its confidences mean nothing."
    )
