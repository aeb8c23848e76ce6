"""A review as a FHIR DiagnosticReport (R4B), with its observations and pictures contained in it.

No patient is named: the subject is a research subject without identity. Findings are coded by our
own labels and described by CEST terms; codes of other systems are not guessed.
"""

from base64 import b64encode
from html import escape
from importlib.metadata import version
from typing import Any, Final

from enteron.files import json_text
from enteron.review.cest import HEADINGS
from enteron.review.exports.reviewed import Reviewed
from enteron.review.scores import SAURIN_MEANING
from enteron.review.summary import NOTICE, Finding

LABEL_SYSTEM: Final = "urn:enteron:label"
MEASURE_SYSTEM: Final = "urn:enteron:measure"
STUDY_SYSTEM: Final = "urn:enteron:study"
RECORD_SYSTEM: Final = "urn:enteron:record"
_UCUM: Final = "http://unitsofmeasure.org"
_SUBJECT: Final = {"display": "research subject, not identified"}


def fhir_report(study: Reviewed) -> bytes:
    """The report as JSON, validated."""
    from fhir.resources.R4B.diagnosticreport import DiagnosticReport

    report = DiagnosticReport.model_validate(_report(study))
    return (json_text(_plain(report.model_dump_json()), indent=1) + "\n").encode()


def _plain(text: str) -> Any:
    import json

    return json.loads(text)


def _report(study: Reviewed) -> dict[str, Any]:
    state, summary = study.state, study.summary
    status = "preliminary"
    if study.is_signed:
        status = "final" if len(state.signatures) == 1 else "amended"
    contained: list[dict[str, Any]] = []
    media: list[dict[str, Any]] = []
    for number, finding in enumerate(summary.findings, 1):
        name = f"finding-{number}"
        observation = _finding(finding, name, status)
        frame = study.key_frame(finding)
        if frame is not None:
            picture = f"picture-{number}"
            contained.append(_media(study, frame, picture))
            media.append(
                {"comment": f"{finding.label}, frame {frame}", "link": {"reference": f"#{picture}"}}
            )
            observation["derivedFrom"] = [{"reference": f"#{picture}"}]
        contained.append(observation)
    contained += _measures(study, status)
    results = [r for r in contained if r["resourceType"] == "Observation"]
    report: dict[str, Any] = {
        "resourceType": "DiagnosticReport",
        "text": {"status": "generated", "div": _narrative(study)},
        "identifier": [
            {"system": STUDY_SYSTEM, "value": study.study},
            {"system": RECORD_SYSTEM, "value": str(study.head)},
        ],
        "status": status,
        "code": {"text": "Video capsule endoscopy of the small bowel"},
        "subject": _SUBJECT,
        "conclusion": f"{state.report.get('conclusion', '')} [{NOTICE}]".strip(),
    }
    if contained:
        report["contained"] = contained
        report["result"] = [{"reference": f"#{result['id']}"} for result in results]
    if media:
        report["media"] = media
    if study.is_signed:
        report["issued"] = study.time
        report["resultsInterpreter"] = [{"display": state.signatures[-1].user}]
    return report


def _finding(finding: Finding, name: str, status: str) -> dict[str, Any]:
    components = [
        _component("cest", "CEST term", {"valueString": f"{finding.heading}: {finding.term}"}),
        _component("start", "First frame", {"valueInteger": finding.start}),
        _component("stop", "Frame after the last", {"valueInteger": finding.stop}),
    ]
    if finding.seconds is not None:
        components.append(
            _component("time", "Time since the first frame", _quantity(finding.seconds, "s"))
        )
    if finding.transit_share is not None:
        components.append(
            _component(
                "transit-share", "Share of small-bowel transit", _quantity(finding.transit_share)
            )
        )
    if finding.saurin is not None:
        meaning = f"{finding.saurin.value}: {SAURIN_MEANING[finding.saurin]}"
        components.append(_component("saurin", "Saurin", {"valueString": meaning}))
    observation: dict[str, Any] = {
        "resourceType": "Observation",
        "id": name,
        "status": status,
        "code": {
            "coding": [{"system": LABEL_SYSTEM, "code": finding.label.replace(" ", "-")}],
            "text": finding.label,
        },
        "subject": _SUBJECT,
        "valueBoolean": True,
        "component": components,
    }
    if finding.region is not None:
        observation["bodySite"] = {"text": finding.region}
    return observation


def _measures(study: Reviewed, status: str) -> list[dict[str, Any]]:
    measures, state = study.summary.measures, study.state
    values: list[tuple[str, str, dict[str, Any]]] = [
        ("completeness", "Completeness", {"valueString": measures.completeness})
    ]
    for code, passage in (
        ("gastric-transit", measures.gastric_transit),
        ("small-bowel-transit", measures.small_bowel_transit),
    ):
        if passage.seconds is not None:
            values.append((code, passage.title, _quantity(passage.seconds, "s")))
    if measures.small_bowel_viewed is not None:
        share = _quantity(measures.small_bowel_viewed)
        values.append(("small-bowel-viewed", "Share of the small bowel viewed", share))
    if state.lewis is not None:
        values.append(("lewis", "Lewis score", _quantity(state.lewis.value)))
    if state.cecdai is not None:
        values.append(("cecdai", "CECDAI", _quantity(state.cecdai.value)))
    if state.koda is not None:
        values.append(("koda", "KODA score", _quantity(round(state.koda.value, 2))))
    return [
        {
            "resourceType": "Observation",
            "id": code,
            "status": status,
            "code": {"coding": [{"system": MEASURE_SYSTEM, "code": code}], "text": title},
            "subject": _SUBJECT,
            **value,
        }
        for code, title, value in values
    ]


def _component(code: str, title: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"code": {"coding": [{"system": MEASURE_SYSTEM, "code": code}], "text": title}, **value}


def _quantity(value: float, unit: str = "1") -> dict[str, Any]:
    return {"valueQuantity": {"value": value, "system": _UCUM, "code": unit}}


def _media(study: Reviewed, frame: int, name: str) -> dict[str, Any]:
    return {
        "resourceType": "Media",
        "id": name,
        "status": "completed",
        "content": {
            "contentType": "image/jpeg",
            "data": b64encode(study.picture(frame)).decode(),
            "title": f"frame {frame}",
        },
    }


def _narrative(study: Reviewed) -> str:
    """The report in XHTML, as FHIR wants it: a person can read it without any program."""
    state, summary = study.state, study.summary
    lines = [
        NOTICE,
        f"Study {study.study}, {state.status}. Made by enteron {version('enteron')}.",
        f"Completeness: {summary.measures.completeness}. "
        f"Small-bowel transit: {summary.measures.small_bowel_transit.text}. "
        f"Gastric transit: {summary.measures.gastric_transit.text}.",
        *(f"{name.capitalize()}: {text}" for name, text in state.report.items() if text),
    ]
    if state.lewis is not None:
        lines.append(f"Lewis score {state.lewis.value} ({state.lewis.category}).")
    items = sorted(summary.findings, key=lambda f: (HEADINGS.index(f.heading), f.start))
    listed = "".join(
        f"<li>{escape(f.heading)}: {escape(f.term)}, frames {f.start} to {f.stop - 1}"
        f"{'' if f.region is None else ', ' + escape(f.region)}</li>"
        for f in items
    )
    paragraphs = "".join(f"<p>{escape(line)}</p>" for line in lines)
    findings = f"<ul>{listed}</ul>" if listed else "<p>No finding was confirmed.</p>"
    return f'<div xmlns="http://www.w3.org/1999/xhtml">{paragraphs}{findings}</div>'
