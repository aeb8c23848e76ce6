"""A review as a DICOM structured report (TID 1500), with its key frames as Secondary Capture.

The report needs images as evidence, and these carry everything that DICOM demands of a patient and
a study: the study's own id, and nothing else. UIDs are derived from the content, so that the same
version exported twice is the same object.
"""

import hashlib
from importlib.metadata import version
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from enteron.errors import EnteronError
from enteron.labels import REGIONS
from enteron.review.cest import TERMS
from enteron.review.exports.reviewed import Reviewed
from enteron.review.scores import SAURIN_MEANING
from enteron.review.summary import NOTICE, Finding

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

SCHEME: Final = "99ENTERON"
"""Of codes that are ours: DICOM reserves 99 for private schemes."""
MANUFACTURER: Final = "enteron"
_MOST_PICTURES: Final = 200
_LONG_STRING: Final = 64  # characters of DICOM's LO
_SITES: Final = {
    "mouth": "Mouth",
    "esophagus": "Esophagus",
    "stomach": "Stomach",
    "small intestine": "SmallIntestine",
    "colon": "Colon",
}
"""Names of regions in pydicom's dictionary of SNOMED CT codes."""


def dicom_files(study: Reviewed) -> list[tuple[str, bytes]]:
    """`report.dcm` and a `picture-NNNNNN.dcm` for every key frame."""
    frames = _key_frames(study)
    if not frames:
        raise EnteronError(
            f"no pictures of study {study.study} are stored, and a DICOM report needs one",
            "write them with `enteron report READING --study STUDY`",
        )
    images = {frame: _picture(study, frame, n) for n, frame in enumerate(frames, 1)}
    report = _report(study, images)
    files = [("report.dcm", _bytes(report))]
    files += [(f"picture-{frame:06d}.dcm", _bytes(image)) for frame, image in images.items()]
    return files


def _key_frames(study: Reviewed) -> list[int]:
    """Frames of findings and of the caecum; where there are none, any stored one."""
    frames = {study.key_frame(finding) for finding in study.summary.findings[:_MOST_PICTURES]}
    marks = {mark.frame for mark in study.state.landmarks.values()}
    frames |= marks & set(study.stored_pictures)
    chosen = sorted(frame for frame in frames if frame is not None)
    return chosen or list(study.stored_pictures[:1])


def _uid(study: Reviewed, *parts: object) -> str:
    """A UID of the form 2.25.<number>, of 128 bits that the content gives."""
    content = [study.study, study.state.reading, *map(str, parts)]
    digest = hashlib.sha256("\n".join(map(str, content)).encode()).digest()
    number = int.from_bytes(digest[:16])
    # The bits of a UUID of version 8 (RFC 9562), as 2.25 demands a UUID.
    number = number & ~(0xF << 76) | (0x8 << 76)
    number = number & ~(0x3 << 62) | (0x2 << 62)
    return f"2.25.{number}"


def _pseudonym(study: str) -> str:
    return study if len(study) <= _LONG_STRING else hashlib.sha256(study.encode()).hexdigest()[:32]


def _picture(study: Reviewed, frame: int, number: int) -> "Dataset":
    from highdicom import PhotometricInterpretationValues
    from highdicom.sc import SCImage

    from enteron.study.picture import decode_picture

    image = SCImage(
        pixel_array=decode_picture(study.picture(frame)),
        photometric_interpretation=PhotometricInterpretationValues.RGB,
        bits_allocated=8,
        coordinate_system="PATIENT",
        study_instance_uid=_uid(study, "study"),
        series_instance_uid=_uid(study, "pictures"),
        series_number=1,
        sop_instance_uid=_uid(study, "picture", frame),
        instance_number=number,
        manufacturer=MANUFACTURER,
        patient_id=_pseudonym(study.study),
        patient_orientation=("L", "F"),
        study_id="",
    )
    image.SpecificCharacterSet = "ISO_IR 192"
    # A capsule tumbles: DICOM allows no value here, highdicom wants one.
    image["PatientOrientation"].value = ""
    image.Laterality = ""
    image.Modality = "ES"
    image.SeriesDescription = f"Key frames. {NOTICE}"
    image.ImageComments = f"frame {frame}. {NOTICE}"
    image.BurnedInAnnotation = "NO"
    _anonymous(image)
    return image


def _anonymous(dataset: "Dataset") -> None:
    dataset.PatientIdentityRemoved = "YES"
    dataset.DeidentificationMethod = "never identified: enteron takes no patient metadata"


def _report(study: Reviewed, images: "dict[int, Dataset]") -> "Dataset":
    from highdicom.sr import (
        ComprehensiveSR,
        DeviceObserverIdentifyingAttributes,
        MeasurementReport,
        ObservationContext,
        ObserverContext,
        PersonObserverIdentifyingAttributes,
    )
    from pydicom.sr.codedict import codes

    device = ObserverContext(
        observer_type=codes.DCM.Device,
        observer_identifying_attributes=DeviceObserverIdentifyingAttributes(
            uid=_uid(study, "device"), name=f"enteron {version('enteron')}"
        ),
    )
    person = None
    if study.is_signed:
        person = ObserverContext(
            observer_type=codes.DCM.Person,
            observer_identifying_attributes=PersonObserverIdentifyingAttributes(
                name=_person_name(study.state.signatures[-1].user)
            ),
        )
    groups = [_finding(study, finding, images) for finding in study.summary.findings]
    groups.append(_whole_study(study))
    content = MeasurementReport(
        observation_context=ObservationContext(
            observer_person_context=person, observer_device_context=device
        ),
        procedure_reported=codes.SCT.Endoscopy,
        imaging_measurements=groups,
        referenced_images=list(images.values()),
    )
    _add_texts(content[0], study)
    report = ComprehensiveSR(
        evidence=list(images.values()),
        content=content[0],
        series_instance_uid=_uid(study, "report series"),
        series_number=2,
        sop_instance_uid=_uid(study, "report", study.state.number, study.state.digest()),
        instance_number=1,
        manufacturer=MANUFACTURER,
        is_complete=study.is_signed,
        is_final=study.is_signed,
    )
    report.SpecificCharacterSet = "ISO_IR 192"
    report.SeriesDescription = NOTICE
    _anonymous(report)
    return report


def _person_name(user: str) -> str:
    """A user as DICOM's PN: one component, which the caret at the end says."""
    return "".join(" " if character in "^=\\" else character for character in user)[:63] + "^"


def _add_texts(root: "Dataset", study: Reviewed) -> None:
    """The notice and the sections of the report as comments."""
    from highdicom.sr import RelationshipTypeValues, TextContentItem
    from pydicom.sr.codedict import codes

    texts = [NOTICE]
    texts += [f"{name}: {text}" for name, text in study.state.report.items() if text]
    for text in texts:
        root.ContentSequence.append(
            TextContentItem(
                name=codes.DCM.Comment,
                value=text,
                relationship_type=RelationshipTypeValues.CONTAINS,
            )
        )


def _code(value: str, meaning: str) -> Any:
    from highdicom.sr import CodedConcept

    return CodedConcept(value=value[:16], scheme_designator=SCHEME, meaning=meaning[:64])


def _finding(study: Reviewed, finding: Finding, images: "dict[int, Dataset]") -> Any:
    from highdicom.sr import (
        FindingSite,
        Measurement,
        MeasurementsAndQualitativeEvaluations,
        QualitativeEvaluation,
        SourceImageForMeasurementGroup,
        TrackingIdentifier,
    )
    from pydicom.sr.codedict import codes

    measurements = [
        Measurement(_code("START", "First frame"), finding.start, codes.UCUM.NoUnits),
        Measurement(_code("STOP", "Frame after the last"), finding.stop, codes.UCUM.NoUnits),
    ]
    if finding.seconds is not None:
        measurements.append(
            Measurement(_code("TIME", "Time since first frame"), finding.seconds, codes.UCUM.Second)
        )
    if finding.transit_share is not None:
        name = _code("TRANSIT", "Share of small-bowel transit")
        measurements.append(Measurement(name, finding.transit_share, codes.UCUM.NoUnits))
    term = TERMS[finding.label]
    evaluations = [
        QualitativeEvaluation(
            _code("CEST", "CEST term"),
            _code(f"C-{list(TERMS).index(finding.label)}", f"{term.heading}: {term.term}"),
        )
    ]
    if finding.saurin is not None:
        grade = _code(finding.saurin.value, SAURIN_MEANING[finding.saurin])
        evaluations.append(QualitativeEvaluation(_code("SAURIN", "Saurin"), grade))
    frame = study.key_frame(finding)
    sources = [
        SourceImageForMeasurementGroup(image.SOPClassUID, image.SOPInstanceUID)
        for number, image in images.items()
        if number == frame
    ]
    site = None if finding.region is None else getattr(codes.SCT, _SITES[finding.region])
    return MeasurementsAndQualitativeEvaluations(
        tracking_identifier=TrackingIdentifier(
            uid=_uid(study, "finding", finding.id), identifier=finding.id
        ),
        finding_type=_code(f"L-{_LABEL_CODES.index(finding.label)}", finding.label),
        finding_sites=None if site is None else [FindingSite(site)],
        measurements=measurements,
        qualitative_evaluations=evaluations,
        source_images=sources or None,
    )


_LABEL_CODES: Final = (*REGIONS, *TERMS)


def _whole_study(study: Reviewed) -> Any:
    """Transit, completeness and scores, as a group of their own."""
    from highdicom.sr import (
        Measurement,
        MeasurementsAndQualitativeEvaluations,
        QualitativeEvaluation,
        TrackingIdentifier,
    )
    from pydicom.sr.codedict import codes

    state, measures = study.state, study.summary.measures
    values: list[tuple[str, str, float | None, Any]] = [
        ("GASTRIC", "Gastric transit", measures.gastric_transit.seconds, codes.UCUM.Second),
        ("SBTT", "Small-bowel transit", measures.small_bowel_transit.seconds, codes.UCUM.Second),
        ("VIEWED", "Share of small bowel viewed", measures.small_bowel_viewed, None),
        ("LEWIS", "Lewis score", None if state.lewis is None else state.lewis.value, None),
        ("CECDAI", "CECDAI", None if state.cecdai is None else state.cecdai.value, None),
        ("KODA", "KODA score", None if state.koda is None else round(state.koda.value, 2), None),
    ]
    done = measures.completeness
    return MeasurementsAndQualitativeEvaluations(
        tracking_identifier=TrackingIdentifier(uid=_uid(study, "whole"), identifier="study"),
        finding_type=_code("STUDY", "Whole study"),
        measurements=[
            Measurement(_code(code, name), value, unit or codes.UCUM.NoUnits)
            for code, name, value, unit in values
            if value is not None
        ],
        qualitative_evaluations=[
            QualitativeEvaluation(
                _code("COMPLETE", "Completeness"),
                _code({"caecum reached": "YES", "caecum not reached": "NO"}.get(done, "?"), done),
            )
        ],
    )


def _bytes(dataset: "Dataset") -> bytes:
    buffer = BytesIO()
    dataset.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()
