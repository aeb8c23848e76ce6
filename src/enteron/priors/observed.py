"""One annotated study as a matrix of rows and labels, and what can be read off it."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enteron.errors import EnteronError, LabelError
from enteron.labels import COLUMN, LABELS, REGIONS
from enteron.runs import Runs, runs_of
from enteron.types import Annotation, IndexUnit, Unit


@dataclass(frozen=True)
class Observed:
    """The rows from the first labelled one to the last."""

    study: str
    stride: int  # original frames per row
    labels: NDArray[np.bool_]  # (rows, 17)
    region: NDArray[np.int8]  # (rows,) place in REGIONS, -1 without

    def shows(self, label: str) -> bool:
        return bool(self.labels[:, COLUMN[label]].any())

    def runs(self, label: str) -> Runs:
        return runs_of(self.labels[:, COLUMN[label]])

    def stays(self) -> list[tuple[int, int, int]]:
        """(region, start, stop) of every uninterrupted stay; rows without a region are left out."""
        cuts = np.flatnonzero(np.diff(self.region)) + 1
        edges = [0, *cuts.tolist(), self.region.size]
        spans = itertools.pairwise(edges)
        return [(int(self.region[a]), a, b) for a, b in spans if self.region[a] >= 0]


def split_bursts(spans: Runs, gap: int) -> list[Runs]:
    """The runs, cut where more than `gap` rows lie between them."""
    if not len(spans):
        return []
    apart = spans[1:, 0] - spans[:-1, 1]
    return np.split(spans, np.flatnonzero(apart > gap) + 1)


def from_matrix(study: str, stride: int, labels: NDArray[np.bool_]) -> Observed:
    """A study from its label matrix (rows, 17)."""
    regions = labels[:, : len(REGIONS)]
    count = regions.sum(axis=1)
    if (count > 1).any():
        row = int(np.flatnonzero(count > 1)[0])
        names = [REGIONS[i] for i in np.flatnonzero(regions[row])]
        raise LabelError(
            f"study {study} is in {' and '.join(names)} at once, {row} rows after its first",
            "a row shows one region; correct the labels",
        )
    region = np.where(count == 1, regions.argmax(axis=1), -1).astype(np.int8)
    return Observed(study, stride, labels, region)


def observe(
    annotations: Sequence[Annotation[IndexUnit]], strides: Mapping[str, int]
) -> list[Observed]:
    """Every annotation as a matrix; a study without segments or without stride is refused."""
    if not annotations:
        raise EnteronError("there are no studies to fit priors to", "give a truth with studies")
    studies: list[Observed] = []
    for annotation in annotations:
        annotation.require_unit(Unit.INDEX)
        name = annotation.study
        stride = strides.get(name)
        if stride is None or stride < 1:
            raise EnteronError(
                f"for study {name} it is not known how many original frames a row stands for",
                "name its stride: 5 where every fifth frame is stored, 1 where all are",
            )
        if not annotation.segments:
            raise LabelError(f"study {name} has no events", "leave it out")
        first, last = annotation.extent
        labels = np.zeros((last - first, len(LABELS)), dtype=np.bool_)
        for segment in annotation.segments:
            columns = [COLUMN[label] for label in segment.labels]
            labels[segment.start - first : segment.stop - first, columns] = True
        studies.append(from_matrix(name, stride, labels))
    return studies
