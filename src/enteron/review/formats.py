"""Names that the command line offers, apart so that `--help` imports nothing else."""

from enum import StrEnum


class ExportFormat(StrEnum):
    """What a review can be exported as."""

    JSON = "json"
    CSV = "csv"
    LABELS = "labels"
    LABEL_STUDIO = "label-studio"
    FHIR = "fhir"
    DICOM = "dicom"


class Role(StrEnum):
    """What a person may do."""

    READER = "reader"
    VIEWER = "viewer"
