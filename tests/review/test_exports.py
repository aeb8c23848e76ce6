"""Every export parses, and holds exactly what was decided."""

import csv
import io
import json
import shutil
import subprocess

import numpy as np
import pytest

from enteron.datasets.plain_table import read_plain_table
from enteron.errors import EnteronError
from enteron.folders.reading import load_reading
from enteron.labels import COLUMN, FINDINGS
from enteron.review.actions import Confirm
from enteron.review.exports import ExportFormat, export_study, reviewed
from enteron.review.exports.labels import frame_labels
from enteron.review.store import REVIEWS, ReviewStore, opening
from enteron.review.summary import NOTICE
from tests.review.making import FRAMES, review, write_reading, write_study

CONFIRMED = [
    ("ulcer", 120, 130),
    ("angiectasia", 200, 210),
    ("erosion", 300, 305),
    ("erosion", 450, 460),
    ("lymphangioectasis", 480, 490),
]
REJECTED = [("polyp", 350, 360), ("blood", 400, 410)]


@pytest.fixture(scope="module")
def reading(tmp_path_factory):
    root = tmp_path_factory.mktemp("secret-patient-name")
    return write_reading(root / "readings" / "7", write_study(root / "studies"))


@pytest.fixture(scope="module")
def study(reading, tmp_path_factory):
    with ReviewStore(tmp_path_factory.mktemp("store") / REVIEWS) as store:
        review(store, reading)
        yield reviewed(store, reading)


@pytest.fixture(scope="module")
def files(study):
    return {kind: dict(export_study(study, kind)) for kind in ExportFormat}


def test_no_path_leaves_and_every_export_says_for_research(files):
    for kind, named in files.items():
        for name, content in named.items():
            assert "/" not in name
            assert b"secret-patient-name" not in content
            if name.endswith((".xml", "frames.csv")):
                continue  # the labelling interface, and a table of nothing but 0 and 1
            assert NOTICE.encode() in content, (kind, name)


def test_json_holds_exactly_what_was_decided(files):
    content = json.loads(files[ExportFormat.JSON]["review.json"])
    events = content["events"]

    def decided(decision):
        return [(e["label"], e["start"], e["stop"]) for e in events
                if e["decision"] == decision and e["label"] in FINDINGS]  # fmt: skip

    assert decided("confirmed") == CONFIRMED
    assert decided("rejected") == REJECTED
    assert content["landmarks"]["first caecal image"]["frame"] == 520
    assert content["measures"]["small_bowel_transit"]["seconds"] == 420
    assert content["scores"]["lewis"]["value"] == 135
    assert content["report"]["conclusion"].startswith("One ulcer")
    assert content["status"] == "signed"
    assert content["reading_time"]["anna"] == {"active": 203.5, "idle": 20}
    relabelled = next(e for e in events if e["id"] == "m8")
    assert relabelled["machine_label"] == "erythema"


def test_csv_has_a_row_per_event(files):
    rows = list(
        csv.DictReader(io.StringIO(files[ExportFormat.CSV]["reviewed-events.csv"].decode()))
    )
    assert len(rows) == 10
    angiectasia = next(row for row in rows if row["label"] == "angiectasia")
    assert angiectasia["cest"] == "flat: angioectasia"
    assert angiectasia["saurin"] == "P2"
    assert float(angiectasia["transit_share"]) == pytest.approx(100 / 420, abs=1e-4)
    assert (angiectasia["start_time"], angiectasia["stop_time"]) == ("200.0", "210.0")


def test_label_studio_has_the_confirmed_events_as_an_annotation(files):
    (task,) = json.loads(files[ExportFormat.LABEL_STUDIO]["label-studio.json"])
    (annotation,) = task["annotations"]
    found = [
        (r["value"]["timelinelabels"][0], r["value"]["ranges"][0]["start"] - 1,
         r["value"]["ranges"][0]["end"])
        for r in annotation["result"]
    ]  # fmt: skip
    assert found == CONFIRMED
    assert annotation["ground_truth"] is True


# ---- labels of frames


def test_labels_are_present_absent_or_unknown(study):
    labels = frame_labels(study.state, np.arange(FRAMES))

    def at(frame, label):
        column = COLUMN[label]
        if not labels.known[frame, column]:
            return "unknown"
        return "present" if labels.present[frame, column] else "absent"

    assert at(125, "ulcer") == "present"
    assert at(130, "ulcer") == "absent"  # looked at slowly, then signed
    assert at(50, "ulcer") == "unknown"  # nobody looked
    assert at(345, "ulcer") == "unknown"  # went past too fast
    assert at(355, "polyp") == "absent"  # rejected, at whatever speed
    assert at(355, "ulcer") == "unknown"
    assert at(455, "erosion") == "present"  # relabelled
    assert at(455, "erythema") == "absent"
    assert at(485, "lymphangioectasis") == "present"  # added
    assert at(125, "pylorus") == "unknown"  # nobody annotates landmarks by leaving them out
    # Regions by the landmarks: stomach from 0, small intestine from 100, colon from 520.
    assert [at(f, "small intestine") for f in (99, 100, 519, 520)] == [
        "absent", "present", "present", "absent",
    ]  # fmt: skip
    assert at(510, "colon") == "absent"  # the model said so; the landmark was moved
    assert at(520, "colon") == "present"


def test_without_a_signature_nothing_is_absent_by_silence(reading, tmp_path):
    with ReviewStore(tmp_path / REVIEWS) as store:
        review(store, reading, sign=False)
        state = store.state("7")
    labels = frame_labels(state, np.arange(FRAMES))
    assert not labels.known[130, COLUMN["ulcer"]]
    assert labels.present[125, COLUMN["ulcer"]]
    assert not labels.known[125, COLUMN["polyp"]]


def test_the_table_of_labels_is_read_as_it_was_written(files, study, tmp_path):
    (tmp_path / "frames.csv").write_bytes(files[ExportFormat.LABELS]["frames.csv"])
    table = read_plain_table(tmp_path / "frames.csv")["7"]
    frames = np.arange(FRAMES)
    labels = frame_labels(study.state, frames)
    rows = np.searchsorted(frames, table.frames)
    np.testing.assert_array_equal(table.present, labels.present[rows])
    np.testing.assert_array_equal(table.known, labels.known[rows])
    assert set(frames) - set(table.frames.tolist()) == set(frames[~labels.informative].tolist())


def test_a_study_that_nobody_reviewed_is_not_exported(reading, tmp_path):
    with (
        ReviewStore(tmp_path / REVIEWS) as store,
        pytest.raises(EnteronError, match="study 7 was not reviewed; review it first"),
    ):
        reviewed(store, reading)


def test_the_signed_version_is_exported_unless_the_draft_is_asked_for(reading, tmp_path):
    with ReviewStore(tmp_path / REVIEWS) as store:
        review(store, reading)
        machine = opening(reading)
        expected = store.state("7").version
        store.append("7", "ben", Confirm(event="m6"), expected=expected, opening=machine)
        signed, draft = reviewed(store, reading), reviewed(store, reading, draft=True)
    assert signed.state.events["m6"].decision == "rejected"
    assert draft.state.events["m6"].decision == "confirmed"
    assert (signed.is_signed, draft.is_signed) == (True, False)


# ---- FHIR


def test_fhir_is_valid_and_complete(files):
    from fhir.resources.R4B.diagnosticreport import DiagnosticReport

    text = files[ExportFormat.FHIR]["diagnostic-report.json"]
    report = DiagnosticReport.model_validate_json(text)
    table = json.loads(text)
    assert report.status == "final"
    observations = {r["id"]: r for r in table["contained"] if r["resourceType"] == "Observation"}
    findings = [o for name, o in observations.items() if name.startswith("finding-")]
    found = [
        (o["code"]["text"], o["component"][1]["valueInteger"], o["component"][2]["valueInteger"])
        for o in findings
    ]
    assert found == CONFIRMED
    assert observations["lewis"]["valueQuantity"]["value"] == 135
    assert observations["small-bowel-transit"]["valueQuantity"]["value"] == 420
    assert {r["reference"] for r in table["result"]} == {f"#{name}" for name in observations}
    media = [r for r in table["contained"] if r["resourceType"] == "Media"]
    assert len(media) == len(table["media"]) == 4  # nobody has a picture of what the model missed
    assert "Patient" not in text.decode()
    assert "excavated: ulcer, frames 120 to 129, small intestine" in table["text"]["div"]


def test_a_draft_is_preliminary(reading, tmp_path):
    with ReviewStore(tmp_path / REVIEWS) as store:
        review(store, reading, sign=False)
        files = dict(export_study(reviewed(store, reading), ExportFormat.FHIR))
    table = json.loads(files["diagnostic-report.json"])
    assert table["status"] == "preliminary"
    assert "resultsInterpreter" not in table


# ---- DICOM


def test_dicom_holds_the_findings_and_their_pictures(files):
    from io import BytesIO

    import highdicom as hd
    from pydicom import dcmread

    named = files[ExportFormat.DICOM]
    report = dcmread(BytesIO(named["report.dcm"]))
    assert (report.PatientName, report.PatientBirthDate, report.PatientSex) == ("", "", "")
    assert report.PatientID == "7"
    assert report.CompletionFlag == "COMPLETE"
    document = hd.sr.srread(BytesIO(named["report.dcm"]))
    assert isinstance(document.content, hd.sr.MeasurementReport)
    groups = document.content.get_image_measurement_groups()
    found = []
    for group in groups:
        values = {m.name.meaning: m.value for m in group.get_measurements()}
        if "First frame" in values:
            assert group.finding_type is not None
            found.append((group.finding_type.meaning, values["First frame"],
                          values["Frame after the last"]))  # fmt: skip
        else:
            assert values["Lewis score"] == 135
            assert values["Small-bowel transit"] == 420
    assert found == CONFIRMED
    pictures = [dcmread(BytesIO(c)) for n, c in named.items() if n.startswith("picture")]
    assert len(pictures) >= 4
    referenced = {
        item.ReferencedSOPInstanceUID
        for study in report.CurrentRequestedProcedureEvidenceSequence
        for series in study.ReferencedSeriesSequence
        for item in series.ReferencedSOPSequence
    }
    assert referenced == {picture.SOPInstanceUID for picture in pictures}


def test_dicom_exported_twice_is_the_same_object(study, files):
    from io import BytesIO

    from pydicom import dcmread

    again = dict(export_study(study, ExportFormat.DICOM))
    assert set(again) == set(files[ExportFormat.DICOM])
    uids = [dcmread(BytesIO(f["report.dcm"])).SOPInstanceUID
            for f in (again, files[ExportFormat.DICOM])]  # fmt: skip
    assert uids[0] == uids[1]


@pytest.mark.skipif(shutil.which("dciodvfy") is None, reason="dicom3tools is not installed")
def test_dciodvfy_finds_no_error(files, tmp_path):
    for name, content in files[ExportFormat.DICOM].items():
        path = tmp_path / name
        path.write_bytes(content)
        done = subprocess.run(["dciodvfy", str(path)], capture_output=True, text=True, check=False)
        errors = [line for line in done.stderr.splitlines() if line.startswith("Error")]
        assert errors == [], name


def test_a_reading_without_pictures_has_no_dicom(reading, tmp_path):
    with ReviewStore(tmp_path / REVIEWS) as store:
        review(store, reading)
        bare = shutil.copytree(
            reading.folder, tmp_path / "bare", ignore=shutil.ignore_patterns("pictures")
        )
        found = reviewed(store, load_reading(bare))
        with pytest.raises(EnteronError, match="no pictures of study 7 are stored"):
            export_study(found, ExportFormat.DICOM)
