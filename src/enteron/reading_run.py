"""`run.json` of a reading: what was read, with what, and what it could not read."""

from collections import Counter
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from enteron.study import Study
from enteron.types import Scores, Unit

if TYPE_CHECKING:
    from enteron.inference.score import ProbeEffect
    from enteron.inference.store import Embeddings
    from enteron.reading import Reader

_PACKAGES = ("enteron", "torch", "numpy", "scipy", "polars", "opencv-python-headless", "av")
_MOST_NAMED = 100  # unreadable frames that are named; all of them are counted


def run_facts(
    study: Study,
    reader: "Reader",
    embeddings: "Embeddings",
    scores: Scores,
    effect: "ProbeEffect | None",
) -> dict[str, Any]:
    """What `run.json` tells; no place on this machine, nothing of a patient but the id."""
    asked, record = reader.asked, reader.record
    unreadable = study.unreadable
    redundant = None
    if asked.redundancy is not None:
        redundant = {
            "count": embeddings.redundant,
            "share": round(embeddings.redundant / len(embeddings), 4),
            "limit": asked.redundancy,
            "probed": 0 if effect is None else effect.frames,
            "mean_difference": None if effect is None else round(effect.mean, 6),
            "largest_difference": None if effect is None else round(effect.largest, 6),
        }
    return {
        "command": f"enteron read {study.id} --preset {asked.preset}",
        "study": study.id,
        "state": "finished",
        "unit": str(Unit.FRAME),
        "rows": len(embeddings),
        "scored": len(scores.axis),
        "stride": scores.axis.step,
        "gaps": int(scores.axis.gaps().size),
        "rate": None if study.rate is None else float(study.rate),
        "rate_note": None if study.rate is None else "from the video",
        "notes": list(study.notes),
        "unreadable": {
            "count": len(unreadable),
            "frames": sorted(unreadable)[:_MOST_NAMED],
            "reasons": dict(Counter(unreadable.values()).most_common(20)),
        },
        "redundant": redundant,
        "model": {
            "backbone": record.backbone.name,
            "hash": record.weights_hash[:16],
            "trained_on": record.training,
            "results": record.results,
            "calibrated": reader.calibration is not None,
            "split": record.split_hash,
        },
        "runtime": {
            "name": embeddings.key.runtime,
            "why": reader.why or None,
            "tta": asked.tta,
        },
        "preset": asked.preset,
        "frame_calibration": _frame_calibration(reader),
        "options": reader.decoding.model_dump(),
        "scaling": scaling_note(scores),
        "versions": {name: version(name) for name in _PACKAGES},
    }


def _frame_calibration(reader: "Reader") -> dict[str, Any] | None:
    """What the decoder did to scores first, so that the page shows what it saw."""
    if reader.calibration is None:
        return None
    used = getattr(reader.calibration, reader.decoding.calibration)
    return {"temperature": used.temperature, "bias": used.bias}


def scaling_note(scores: Scores) -> str | None:
    """Said wherever decoder constants were divided."""
    if scores.shortening == 1.0:
        return None
    return (
        f"a shortened study: a row stands for {scores.row_frames:.0f} original frames, so "
        f"constants counted in rows are divided by {scores.shortening:.1f}, for every decoder alike"
    )
