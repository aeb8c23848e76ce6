"""The page of an evaluation: what it shows, hostile names, and the page in a browser."""

import pytest

from enteron.decoding.events import DecodedEvent
from enteron.folders.predictions import read_predictions
from enteron.folders.shown import shown_studies
from enteron.metrics.evaluation import evaluate
from enteron.metrics.lesion_evaluation import ShownStudy, evaluate_lesions
from enteron.report.evaluation import make_evaluation_page, write_evaluation_page
from enteron.types import Annotation, Segment, Unit
from tests.report.conftest import OVERFLOW
from tests.report.making import EVENTS, scores_for, write_folder, write_frames

HOSTILE = "<script>alert(1)</script>&\"'"
TRUTH = Annotation(
    "s1",
    Unit.FRAME,
    (
        Segment(0, 120, ("stomach",)),
        Segment(120, 400, ("small intestine",)),
        Segment(150, 160, ("blood",)),
        Segment(260, 290, ("ulcer",)),
    ),
)


def evaluated(folder, truths):
    predictions = read_predictions(folder, Unit.FRAME)
    evaluation = evaluate(truths, predictions.annotations, rates=predictions.rates)
    shown = shown_studies(predictions, evaluation.studies)
    return evaluation, evaluate_lesions(truths, shown, evaluation.bootstrap), predictions.folders


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Two readings with pictures, and the page of their evaluation."""
    root = tmp_path_factory.mktemp("evaluation")
    for study in ("s1", "s2"):
        write_folder(root / study, scores=scores_for(EVENTS, study=study), pictures=True)
    other = Annotation("s2", Unit.FRAME, TRUTH.segments)
    evaluation, lesions, folders = evaluated(root, [TRUTH, other])
    studies = {study: write_frames(root / "frames" / study, range(250, 300)) for study in folders}
    write_evaluation_page(root / "page.html", evaluation, lesions, folders, studies)
    return root / "page.html"


def test_it_shows_what_was_found_and_the_worst_mistakes(page):
    text = page.read_text()
    assert "Of 4 annotated lesions the program shows 2." in text
    assert "6 events are reported; 4 of them show nothing of their kind." in text
    #  Missed ulcers from the frames, false alarms from the readings: all eight have a picture.
    assert text.count("data:image/jpeg") == 6
    assert "frames 260 to 289" in text
    for word in ("tIoU", "hysteresis", "kappa"):
        assert word not in text


def test_without_readings_there_are_no_pictures_and_no_curve(tmp_path):
    predicted = Annotation(
        "s1", Unit.FRAME, (Segment(0, 400, ("colon",)), Segment(5, 9, ("polyp",)))
    )
    evaluation = evaluate([TRUTH], [predicted])
    lesions = evaluate_lesions([TRUTH], [ShownStudy(predicted)], evaluation.bootstrap)
    made = make_evaluation_page(evaluation, lesions, {}, {})
    assert made.froc is None
    assert made.reliability == ()
    assert [mistake.label for mistake in made.misses] == ["ulcer", "blood"]
    assert [mistake.picture for mistake in (*made.misses, *made.alarms)] == [None] * 3
    write_evaluation_page(tmp_path / "page.html", evaluation, lesions, {})
    assert "an official file has no pictures" in (tmp_path / "page.html").read_text()


def test_nothing_to_evaluate_is_a_page_too(tmp_path):
    empty = Annotation("s1", Unit.FRAME)
    evaluation = evaluate([empty], [empty])
    lesions = evaluate_lesions([empty], [ShownStudy(empty)], evaluation.bootstrap)
    write_evaluation_page(tmp_path / "page.html", evaluation, lesions, {})
    assert "No lesion is annotated." in (tmp_path / "page.html").read_text()


def test_hostile_names_stay_text(tmp_path):
    named = Annotation(HOSTILE, Unit.FRAME, TRUTH.segments)
    evaluation = evaluate([named], [named])
    lesions = evaluate_lesions([named], [ShownStudy(named)], evaluation.bootstrap)
    write_evaluation_page(tmp_path / "page.html", evaluation, lesions, {})
    text = (tmp_path / "page.html").read_text()
    assert HOSTILE not in text
    assert "&lt;script&gt;alert(1)" in text


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_and_does_not_complain(browser, page, width, dark):
    tab = browser.open(page, width, dark=dark)
    tab.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    tab.settle()
    assert tab.run(OVERFLOW) == 0
    outside = tab.run(
        "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, svg') && "
        "e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert outside == []
    assert tab.run("document.querySelectorAll('.chart polyline.is-all').length") == 1
    assert tab.run("document.querySelectorAll('#studies circle').length") == 2
    assert tab.run("document.querySelectorAll('.square').length") == 3
    loaded = tab.run("[...document.images].every(i => i.loading === 'lazy' || i.naturalWidth > 0)")
    assert loaded
    assert tab.complaints() == []
    assert tab.requests() == []
    tab.close()


def test_many_false_events_are_counted_and_the_most_confident_shown(tmp_path):
    events = [DecodedEvent(10 * i, 10 * i + 4, "polyp", 0.01 * i + 0.1, "colon") for i in range(30)]
    write_folder(tmp_path / "s1", events)
    evaluation, lesions, folders = evaluated(tmp_path / "s1", [TRUTH])
    made = make_evaluation_page(evaluation, lesions, folders, {})
    assert made.false_events == 30
    shown = [mistake.confidence or 0.0 for mistake in made.alarms]
    assert shown == sorted(shown, reverse=True)
    assert shown[0] == pytest.approx(0.39)
