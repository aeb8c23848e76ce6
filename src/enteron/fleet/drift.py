"""Drift watch: do the studies of a device and month still look like those of the calibration?

Per study there are a few numbers (`enteron.folders.statistics`): brightness, the mean score of each
label, and a signature of the embeddings. A group of studies is compared with the studies that the
model was calibrated on:

- brightness and scores by the Mann-Whitney test, with Cliff's delta as the size of the shift;
- signatures by the energy distance, with a permutation test.

All tests of a group are corrected together (Holm), so that a group without drift is reported in at
most one of a hundred cases; a shift must be large as well (Cliff's delta of .474, Romano's limit),
since with many studies any small difference is significant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from enteron.confidence import Reference, StudyStatistics
from enteron.errors import EnteronError
from enteron.files import JSON_LIMIT, make_folder, read_text, write_text
from enteron.fleet import FLEET
from enteron.fleet.catalogue import COLUMN_NAMES
from enteron.folders.model import CALIBRATION, load_calibration
from enteron.options import parse_json_options

if TYPE_CHECKING:
    import polars as pl

_REFERENCE: Final = "reference.json"
ALPHA: Final = 0.01
"""Largest probability that a group without drift is said to have moved."""
LARGE: Final = 0.474
"""Cliff's delta from which a shift is large (Romano and others, 2006)."""
LEAST_STUDIES: Final = 5
_PERMUTATIONS: Final = 2999
_MOST_COMPARED: Final = 400  # studies of a group in the permutation test: its cost is quadratic

Floats = NDArray[np.float64]


# ---- statistics


def cliffs_delta(group: Floats, reference: Floats) -> float:
    """Share of pairs in which the group is higher, minus the share in which it is lower."""
    difference = np.sign(group[:, None] - reference[None])
    return float(difference.mean())


def mann_whitney(group: Floats, reference: Floats) -> float:
    """Two-sided p-value; exact for small samples without ties."""
    from scipy.stats import mannwhitneyu

    if np.ptp(np.concatenate([group, reference])) == 0:
        return 1.0
    return float(mannwhitneyu(group, reference, alternative="two-sided").pvalue)


def energy_test(group: Floats, reference: Floats, seed: int = 0) -> tuple[float, float]:
    """Energy distance of two sets of points (n, d), as a share of their mean distance, and p.

    The share is 0 for equal distributions and at most 1. Labels of the points are permuted for p.
    """
    rng = np.random.default_rng(seed)
    if len(group) > _MOST_COMPARED:
        group = group[rng.choice(len(group), _MOST_COMPARED, replace=False)]
    points = np.concatenate([group, reference])
    squares = np.square(points).sum(axis=1)
    distances = np.sqrt(np.maximum(squares[:, None] + squares[None] - 2 * points @ points.T, 0))
    np.fill_diagonal(distances, 0)
    n, m = len(group), len(reference)
    total = distances.sum()

    def energy(inside: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Of many divisions (k, n + m) at once."""
        weights = inside.astype(np.float64)
        to_group = weights @ distances  # (k, n + m)
        within = (to_group * weights).sum(axis=1)
        across = (to_group * (1 - weights)).sum(axis=1)
        rest = total - within - 2 * across
        mean = across / (n * m)
        return 2 * mean - within / n**2 - rest / m**2, mean

    first = np.zeros((1, n + m), np.bool_)
    first[0, :n] = True
    (observed,), (mean,) = energy(first)
    order = np.argsort(rng.random((_PERMUTATIONS, n + m)), axis=1)
    permuted, _ = energy(order < n)
    p = (1 + (permuted >= observed - 1e-12).sum()) / (_PERMUTATIONS + 1)
    return float(observed / (2 * mean)) if mean > 0 else 0.0, float(p)


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrected p-values: below alpha for any true null hypothesis in at most that share."""
    order = np.argsort(p_values)
    corrected = np.empty(len(p_values))
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected.tolist()


# ---- groups of studies


@dataclass(frozen=True)
class Shift:
    """One statistic of a group beside that of the calibration."""

    name: str  # 'brightness', 'scores of ulcer', 'appearance'
    p: float  # corrected
    size: float  # Cliff's delta, or the energy distance as a share
    median: float | None = None  # of the group; None for the appearance
    reference: float | None = None  # median of the calibration's studies
    moved: bool = False

    @property
    def sentence(self) -> str:
        """For people."""
        if self.median is None or self.reference is None:
            return f"{self.name} (the embeddings lie elsewhere)"
        direction = "higher" if self.size > 0 else "lower"
        digits = 0 if self.name == "brightness" else 3
        return (
            f"{self.name}: {direction}, {self.median:.{digits}f} where the calibration has "
            f"{self.reference:.{digits}f}"
        )


@dataclass(frozen=True)
class Group:
    """The studies of a device and month."""

    device: str
    month: str
    studies: int
    shifts: tuple[Shift, ...]
    note: str = ""  # why nothing can be said

    @property
    def moved(self) -> tuple[Shift, ...]:
        """What moved, the largest shift first."""
        moved = [shift for shift in self.shifts if shift.moved]
        return tuple(sorted(moved, key=lambda shift: -abs(shift.size)))


@dataclass(frozen=True)
class DriftReport:
    """All groups; or a sentence why there is nothing to compare with."""

    groups: tuple[Group, ...] = ()
    reference: int = 0  # studies of the calibration
    note: str = ""


def compare_group(
    device: str,
    month: str,
    group: Sequence[StudyStatistics],
    reference: Sequence[StudyStatistics],
) -> Group:
    """Every statistic of a group against the calibration's."""
    if len(group) < LEAST_STUDIES:
        note = f"fewer than {LEAST_STUDIES} studies: too few to tell"
        return Group(device, month, len(group), (), note)
    compared: list[tuple[str, float, float, float | None, float | None]] = []
    for name, ours, theirs in _scalars(group, reference):
        compared.append(
            (
                name,
                mann_whitney(ours, theirs),
                cliffs_delta(ours, theirs),
                float(np.median(ours)),
                float(np.median(theirs)),
            )
        )
    size, p = energy_test(
        np.array([study.signature for study in group]),
        np.array([study.signature for study in reference]),
    )
    compared.append(("appearance", p, size, None, None))
    corrected = holm([p for _, p, *_ in compared])
    shifts = tuple(
        Shift(
            name,
            p,
            size,
            median,
            other,
            moved=p < ALPHA and (median is None or abs(size) >= LARGE),
        )
        for (name, _, size, median, other), p in zip(compared, corrected, strict=True)
    )
    return Group(device, month, len(group), shifts)


def _scalars(
    group: Sequence[StudyStatistics], reference: Sequence[StudyStatistics]
) -> list[tuple[str, Floats, Floats]]:
    def numbers(studies: Sequence[StudyStatistics], label: str | None) -> Floats:
        values = [
            study.brightness if label is None else study.scores.get(label) for study in studies
        ]
        return np.array([value for value in values if value is not None], np.float64)

    named: list[tuple[str, str | None]] = [("brightness", None)]
    named += [(f"scores of {label}", label) for label in COLUMN_NAMES]
    pairs = [(name, numbers(group, label), numbers(reference, label)) for name, label in named]
    return [(name, ours, theirs) for name, ours, theirs in pairs if min(ours.size, theirs.size) > 1]


def drift_report(studies: "pl.DataFrame", reference: Reference | None) -> DriftReport:
    """What moved, per device and month, in the table of studies."""
    if reference is None or len(reference.studies) < LEAST_STUDIES:
        return DriftReport(
            note="The model's calibration does not say what its studies look like, or has too few "
            "of them: calibrate it again (enteron calibrate) on at least "
            f"{LEAST_STUDIES} studies."
        )
    encoder = reference.studies[0].encoder
    grouped: dict[tuple[str, str], list[StudyStatistics]] = {}
    others = 0
    columns = ["device", "month", "brightness", "signature", "encoder"]
    columns += [f"{name}_mean" for name in COLUMN_NAMES.values()]
    finished = studies.filter(studies["state"] == "finished").select(columns)
    for row in finished.iter_rows(named=True):
        if row["signature"] is None:
            continue
        if row["encoder"] != encoder:
            others += 1
            continue
        key = (row["device"] or "unknown device", row["month"] or "unknown month")
        grouped.setdefault(key, []).append(_statistics(row))
    groups = tuple(
        compare_group(device, month, group, reference.studies)
        for (device, month), group in sorted(grouped.items())
    )
    note = f"{others:,} studies were read with another encoder and are left out." if others else ""
    return DriftReport(groups, len(reference.studies), note)


def _statistics(row: Mapping[str, Any]) -> StudyStatistics:
    return StudyStatistics(
        brightness=row["brightness"],
        scores={
            label: row[f"{name}_mean"]
            for label, name in COLUMN_NAMES.items()
            if row[f"{name}_mean"] is not None
        },
        signature=tuple(row["signature"]),
        encoder=row["encoder"],
    )


# ---- the calibration's studies, kept beside the readings


def store_reference(out: Path, model: Path) -> None:
    """Keep what the calibration's studies look like beside the readings, for the page."""
    if not (model / CALIBRATION).exists():
        return
    reference = load_calibration(model).reference
    if reference is not None:
        make_folder(out / FLEET)
        write_text(out / FLEET / _REFERENCE, reference.model_dump_json() + "\n")


def load_reference(out: Path) -> Reference | None:
    """The studies of the calibration; None where the model had none."""
    path = out / FLEET / _REFERENCE
    if not path.exists():
        return None
    try:
        text = read_text(path, JSON_LIMIT, "delete it")
        return parse_json_options(Reference, text, _REFERENCE, "delete it")
    except EnteronError:
        return None
