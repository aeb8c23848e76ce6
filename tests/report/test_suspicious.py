"""The pictures to look at first: on the page, in words, and in a browser."""

import json

import pytest

from enteron.folders.suspicious import SUSPICIOUS, Promise, write_suspicious
from enteron.priors import load_priors
from enteron.report import write_report
from enteron.report.pictures import choose_pictures, save_pictures
from enteron.report.suspicious import promise_note
from enteron.study import open_study
from tests.report.making import EVENTS, scores_for, write_folder, write_frames

PRIORS = load_priors()


@pytest.fixture(scope="module")
def reading(tmp_path_factory):
    """A reading with a list and its pictures."""
    folder = write_folder(tmp_path_factory.mktemp("r"))
    scores = scores_for(EVENTS)
    content = write_suspicious(folder, scores, EVENTS, PRIORS, None)
    frames = write_frames(folder / "frames", scores.axis.frames)
    choice = choose_pictures(scores, EVENTS, [listed.frame for listed in content.frames])
    assert len(choice.suspicious) == 100
    save_pictures(open_study(frames, study_id="s1"), choice, folder)
    return folder


def test_it_is_shown_first(reading):
    page = write_report(reading).read_text()
    main = page[page.index("<main") :]
    assert main.index('id="suspicious"') < main.index('id="timeline"')
    assert main.count('<li class="suspect') == 100
    listed = json.loads((reading / SUSPICIOUS).read_text())["frames"]
    assert f"Frame {listed[0]['frame']:,}" in main
    assert "not a probability: the model was not calibrated" in main


def test_a_reading_without_a_list_has_no_panel(tmp_path):
    page = write_report(write_folder(tmp_path)).read_text()
    assert 'id="suspicious"' not in page


def promise(**changes) -> Promise:
    fields = {
        "recall": 0.9,
        "pictures": 212,
        "studies": 42,
        "devices": {"olympus": 30, "pillcam": 12},
        "verdict": "holds",
        "reason": "the pictures of this study look like those of the 42 fitted studies",
    }
    return Promise.model_validate({**fields, **changes})


def test_a_promise_in_words():
    note = promise_note(promise(p_value=0.31, device="olympus"))
    assert note.headline == "A recall is promised for this study."
    assert (
        "miss at most 10% of the lesions on average, look at the first 212 pictures"
        in note.sentence
    )
    assert "about 5 min" in note.sentence
    assert "a single study may miss more" in note.sentence
    assert "capsules: olympus (30), pillcam (12); this study: olympus" in note.basis
    assert "about 31% would look at least as unusual" in note.basis
    broken = promise_note(
        promise(verdict="does not hold", reason="it was fitted on other capsules")
    )
    assert "does not hold for this study" in broken.headline
    assert "212" not in broken.sentence  # nothing is promised, so no number invites trust
    assert "Do not rely on it" in broken.sentence
    unknown = promise_note(
        promise(verdict="unknown", reason="no embeddings are stored", devices={})
    )
    assert "cannot be told" in unknown.headline
    assert "their capsules were not recorded" in unknown.basis


def test_pictures_open_and_step_in_a_browser(browser, reading):
    tab = browser.open(write_report(reading))
    tab.click(".suspect .enlarge")
    assert tab.run("document.getElementById('viewer').open")
    first = tab.run("document.getElementById('viewer-caption').textContent")
    assert first.startswith("1. Possible ")
    tab.key("ArrowRight")
    assert tab.run("document.getElementById('viewer-caption').textContent").startswith(
        "2. Possible "
    )
    tab.run("document.getElementById('viewer').close()")
    assert tab.complaints() == []
    assert tab.requests() == []
    tab.close()
