"""What is accepted as truth: an official file, or Galar's label files."""

from pathlib import Path

from enteron.errors import LabelError
from enteron.types import Annotation, Unit


def read_truth(path: Path, unit: Unit) -> list[Annotation[Unit]]:
    """Truth events from an official JSON, a folder of label files, or a data root.

    An official file does not say what it counts; `unit` is then taken at its word.
    """
    if not path.is_dir():
        from enteron.galar.submission import read_events

        return read_events(path, unit)
    from enteron.galar.catalogue import find_labels, find_studies
    from enteron.galar.table import read_label_table

    studies = {study: entry for study, entry in find_studies(path).items() if entry.labels}
    if studies:
        tables = [entry.table() for entry in studies.values()]
    else:
        tables = [read_label_table(file, study=study) for study, file in find_labels(path).items()]
    if not tables:
        raise LabelError(
            f"the folder '{path.name}' holds no label files",
            "give an official JSON, or a folder with one CSV per study",
        )
    from enteron.galar.truth import truth_events

    return [
        Annotation(events.study, unit, events.segments)
        for events in (truth_events(table, unit) for table in tables)
    ]
