"""Reviewed studies for other programs: tables, labels, Label Studio, FHIR, DICOM."""

from enteron.errors import EnteronError
from enteron.review.exports.reviewed import Reviewed, reviewed
from enteron.review.formats import ExportFormat

__all__ = ["ExportFormat", "Reviewed", "export_study", "reviewed"]


def export_study(
    study: Reviewed,
    format: ExportFormat,  # noqa: A002
    *,
    video: str | None = None,
) -> list[tuple[str, bytes]]:
    """The files of one study in a format: names without folders, and content."""
    try:
        if format is ExportFormat.JSON:
            from enteron.review.exports.tables import review_json

            return [("review.json", review_json(study))]
        if format is ExportFormat.CSV:
            from enteron.review.exports.tables import events_csv

            return [("reviewed-events.csv", events_csv(study))]
        if format is ExportFormat.LABELS:
            from enteron.review.exports.labels import labels_csv

            return [("frames.csv", labels_csv([study]))]
        if format is ExportFormat.LABEL_STUDIO:
            from enteron.review.exports.label_studio import label_studio_files

            return label_studio_files(study, video)
        if format is ExportFormat.FHIR:
            from enteron.review.exports.fhir import fhir_report

            return [("diagnostic-report.json", fhir_report(study))]
        from enteron.review.exports.dicom import dicom_files

        return dicom_files(study)
    except ModuleNotFoundError as error:
        raise EnteronError(
            f"the format '{format}' needs the package '{error.name}'",
            "install it with `pip install 'enteron[exchange]'`",
        ) from error
