"""The reader in Chromium: a whole reading by keyboard, what it exports, and hostile text."""

import csv
import io
import json
import re
import urllib.request
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import pydicom
import pytest
from fhir.resources.R4B.diagnosticreport import DiagnosticReport

from tests.report.conftest import OVERFLOW
from tests.report.test_chromium import CONTRASTS
from tests.serve.making import REVIEWED, make_unlike, server, write_root
from tests.serve.scenario import Decided, read_and_sign


def fetch(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return answer.read()


@pytest.fixture
def root(tmp_path):
    return write_root(tmp_path, pictures=True)


def test_from_the_worklist_to_a_signed_report(browser, root):
    with server(root) as address:
        tab = browser.open(f"{address}/", 1400, 950)
        done = read_and_sign(tab, missed=310, caecum=300)
        assert tab.complaints() == []
        assert all(request.startswith(address) for request in tab.requests())
        assert len(done.confirmed) == 3
        assert len(done.rejected) == 2
        assert len(done.relabelled) == 1
        assert done.transit[0].startswith("1 min 40 s")  # 200 frames at 2 a second
        assert done.transit[1] == "1 min 30 s"
        assert done.lewis == 5 * 5 * 9
        shown = tab.run("document.getElementById('paper').textContent")
        for text in ("version 1, signed by anna", "225: mild inflammation", "1 min 30 s",
                     "obscure bleeding", "for research only"):  # fmt: skip
            assert text in shown.lower(), text
        listed = tab.run("[...document.querySelectorAll('[data-event]')].map(e => e.dataset.event)")
        real = {*done.confirmed, *done.relabelled, done.added["id"]}
        assert set(listed) == real
        assert tab.pdf().startswith(b"%PDF")
        check_exports(f"{address}/api/studies/s1/export", done, real)
        tab.close()


def check_exports(exports: str, done: Decided, real: set[str]) -> None:
    """Every export parses and holds exactly what was decided."""
    labels = {f"m{n}": event.label for n, event in enumerate(REVIEWED)}
    spans = {f"m{n}": (event.start, event.stop) for n, event in enumerate(REVIEWED)}
    rejected = [(*spans[name], labels[name]) for name in done.rejected]
    labels |= done.relabelled | {done.added["id"]: done.added["label"]}
    spans[done.added["id"]] = (done.added["start"], done.added["stop"])
    expected = sorted((*spans[name], labels[name]) for name in real)

    def found(rows: Sequence[Mapping[str, Any]], decision: str) -> list[tuple[int, int, str]]:
        return sorted(
            (int(row["start"]), int(row["stop"]), str(row["label"]))
            for row in rows
            if row["decision"] == decision
        )

    content = json.loads(fetch(f"{exports}/json"))
    table = list(csv.DictReader(io.StringIO(fetch(f"{exports}/csv").decode())))
    for rows in (content["events"], table):
        assert found(rows, "confirmed") == expected
        assert found(rows, "rejected") == sorted(rejected)
    assert content["status"] == "signed"
    assert content["scores"]["lewis"]["value"] == done.lewis
    assert content["landmarks"]["first caecal image"]["frame"] == done.caecum
    assert content["measures"]["small_bowel_transit"]["seconds"] == 90.0
    # Labels of frames: present where confirmed, absent where rejected.
    marked = csv.DictReader(io.StringIO(fetch(f"{exports}/labels").decode()))
    frames = {int(row["frame"]): row for row in marked}
    for start, stop, label in expected:
        assert {frames[n][label] for n in range(start, stop)} == {"1"}
    for start, stop, label in rejected:
        assert {frames[n][label] for n in range(start, stop)} == {"0"}
    # FHIR: an observation per finding.
    fhir = fetch(f"{exports}/fhir")
    assert DiagnosticReport.model_validate_json(fhir).status == "final"
    contained = json.loads(fhir)["contained"]
    observations = [part for part in contained if part["id"].startswith("finding-")]
    assert sorted(part["code"]["coding"][0]["code"] for part in observations) == sorted(
        label.replace(" ", "-") for _, _, label in expected
    )
    # DICOM: every referenced picture comes with the report, and every finding is in it.
    archive = zipfile.ZipFile(io.BytesIO(fetch(f"{exports}/dicom")))
    files = {name: pydicom.dcmread(io.BytesIO(archive.read(name))) for name in archive.namelist()}
    structured = files.pop("s1/report.dcm")
    assert structured.Modality == "SR"
    assert structured.CompletionFlag == "COMPLETE"
    text = str(structured)
    assert {label for _, _, label in expected if f"'{label}'" in text} == {e[2] for e in expected}
    assert all(
        label not in text for _, _, label in rejected if label not in {e[2] for e in expected}
    )
    evidence = structured.CurrentRequestedProcedureEvidenceSequence[0].ReferencedSeriesSequence
    referenced = {
        item.ReferencedSOPInstanceUID
        for series in evidence
        for item in series.ReferencedSOPSequence
    }
    assert referenced == {picture.SOPInstanceUID for picture in files.values()}
    # Label Studio: pictures are counted from 1, ends included.
    studio = zipfile.ZipFile(io.BytesIO(fetch(f"{exports}/label-studio")))
    (task,) = json.loads(studio.read("s1/label-studio.json"))
    values = [result["value"] for result in task["annotations"][0]["result"]]
    ranges = [
        (value["ranges"][0]["start"] - 1, value["ranges"][0]["end"], value["timelinelabels"][0])
        for value in values
    ]
    assert sorted(ranges) == expected


def test_a_reload_finds_everything_again_and_undo_takes_it_back(browser, root):
    with server(root) as address:
        tab = browser.open(f"{address}/read/s1", 1400, 950)
        ready = "document.querySelector('#reader.is-complete')"
        tab.wait_for(ready)
        tab.key("n")
        tab.key("a")
        tab.wait_for("enteron.review.state.events.m6.decision === 'confirmed'")
        tab.page.reload()
        tab.wait_for(ready)
        assert tab.run("enteron.review.state.events.m6.decision") == "confirmed"
        tab.key("z")
        tab.wait_for("enteron.review.state.events.m6.decision === 'open'")
        tab.key("y")
        tab.wait_for("enteron.review.state.events.m6.decision === 'confirmed'")
        # What somebody else does is seen without a reload.
        other = browser.open(f"{address}/read/s1", 1400, 950)
        other.wait_for(ready)
        other.key("n")
        other.key("x")
        tab.wait_for("enteron.review.state.events.m6.decision === 'rejected'")
        assert other.complaints() == []
        other.close()
        # Looking at frames and being active is noted.
        tab.wait_for("enteron.review.state.viewed.length > 0")
        tab.run("enteron.activity.sendTime()")
        tab.wait_for("enteron.review.answer.summary.measures.active_seconds > 0")
        assert tab.complaints() == []
        tab.close()


@pytest.mark.parametrize("dark", [False, True])
def test_pages_fit_and_can_be_read(browser, root, dark):
    with server(root) as address:
        for path in ("/", "/read/s1"):
            for width in (1400, 420):
                tab = browser.open(f"{address}{path}", width, 900, dark=dark)
                tab.wait_for("document.querySelector('#rows tr, #reader.is-complete')")
                assert tab.run(OVERFLOW) == 0, (path, width)
                if path == "/read/s1" and width == 1400:
                    for key in ("l", "o", "w", "h", "s"):
                        tab.key(key)
                        assert tab.run(CONTRASTS) == [], key
                    tab.key("Escape")
                    tab.key("?")
                    assert tab.run("document.getElementById('help').open")
                assert tab.complaints() == []
                tab.close()


def test_an_unlike_study_is_told_above_everything_and_in_the_report(browser, root):
    make_unlike(root)
    with server(root) as address:
        tab = browser.open(f"{address}/read/s1", 1400, 950)
        tab.wait_for("document.querySelector('#reader.is-complete')")
        above = tab.page.locator("#cautions")
        assert above.is_visible()
        assert "unlike everything that the model was trained and tested on" in above.inner_text()
        assert "nearest to are drawings" in above.inner_text()
        notes = tab.page.locator("#notes").inner_text()
        assert "has seen drawings only (3 studies)" in notes
        assert "Not looked for: polyp (never tested)." in notes
        scores = tab.page.locator("#findings-list .score").all_inner_texts()
        assert "(0.95)" in scores  # angiectasia
        assert all(score.startswith("(") for score in scores)
        tab.key("s")
        tab.wait_for("!document.getElementById('suspects').hidden")
        shown = tab.page.locator("#suspects-list li .small").first.inner_text()
        assert shown.startswith("(")
        tab.key("Escape")
        # Signing can be left without a signature.
        tab.key("Control+Enter")
        tab.wait_for("document.getElementById('sign').open")
        tab.page.locator("#sign-cancel").click()
        assert not tab.run("document.getElementById('sign').open")
        assert tab.run("enteron.review.state.signatures.length") == 0
        tab.key("Control+Enter")
        tab.wait_for("document.getElementById('sign').open")
        tab.key("Enter")
        tab.page.wait_for_url("**/report/**")
        tab.wait_for("!document.getElementById('paper').hidden")
        report = tab.run("document.getElementById('paper').textContent")
        assert "unlike everything that the model was trained and tested on" in report
        assert "has seen drawings only" in report
        assert tab.complaints() == []
        tab.close()


def test_hostile_text_is_only_text(browser, root):
    hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    with server(root) as address:
        tab = browser.open(f"{address}/read/s1", 1400, 950)
        tab.wait_for("document.querySelector('#reader.is-complete')")
        tab.key("/")
        tab.wait_for("document.getElementById('ask').open")
        tab.page.locator("#ask-text").fill(hostile)
        tab.key("Control+Enter")
        tab.wait_for("enteron.review.state.comments.length === 1")
        tab.key("h")
        tab.wait_for("document.querySelector('#comments-list li')")
        assert hostile in tab.run("document.getElementById('comments-list').textContent")
        assert tab.run("document.querySelectorAll('#comments-list img, main script').length") == 0
        # A script that got into the page all the same would not run.
        tab.run(
            "(() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
            "document.body.append(s); const i = document.createElement('div');"
            "i.innerHTML = '<img src=x onerror=\"window.ran = 2\">'; document.body.append(i); })()"
        )
        tab.wait(0.2)
        assert tab.run("window.ran") is None
        assert tab.dialogs() == []
        assert re.search("Content Security Policy", " ".join(tab.complaints()))
        tab.close()
