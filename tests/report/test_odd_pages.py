"""Pages of unusual readings in a browser: hostile names, nothing to show, gaps, rows, axes."""

import json

import numpy as np
import pytest

from enteron.decoding.events import DecodedEvent
from enteron.report import write_report
from enteron.types import Unit
from tests.report.conftest import OVERFLOW
from tests.report.making import EVENTS, RUN, scores_for, write_folder
from tests.report.test_page import HOSTILE


def test_hostile_texts_do_nothing(browser, tmp_path):
    """Ids are refused when they are read (test_page.py); every other text is shown as it is."""
    run = {**RUN, "preset": HOSTILE, "command": HOSTILE, "scaling": HOSTILE, "notes": [HOSTILE]}
    folder = write_folder(tmp_path, run=run)
    tab = browser.open(write_report(folder))
    assert tab.dialogs() == []
    assert tab.run(f"document.body.textContent.includes({json.dumps(HOSTILE)})")
    assert tab.run("document.querySelectorAll('img[src=x]').length") == 0
    assert tab.run(OVERFLOW) == 0
    assert tab.complaints() == []
    assert tab.requests() == []
    tab.close()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("case", ["nothing", "one frame", "no findings", "gaps", "rows"])
def test_odd_readings(browser, tmp_path, case, width):
    frames, events, options = range(400), EVENTS, {}
    if case == "nothing":
        events = ()
    elif case == "one frame":
        frames, events = range(1), (DecodedEvent(0, 1, "polyp", 0.9),)
    elif case == "no findings":
        events = EVENTS[:3]
    elif case == "gaps":
        frames = np.concatenate((np.arange(0, 300), np.arange(340, 400)))
    else:
        options = {"unit": Unit.INDEX, "run": {}}
    folder = write_folder(tmp_path, events, scores_for(events, frames), **options)
    tab = browser.open(write_report(folder), width)
    for action in ("in", "right", "out", "whole"):
        tab.run(f"document.querySelector('button[data-action=\"{action}\"]').click()")
        tab.settle()
    tab.run("document.getElementById('tracks').focus()")
    for key in ("ArrowRight", "End", "Home", "+", "PageDown"):
        tab.key(key)
    assert tab.run("document.getElementById('readout').textContent").startswith(
        "row" if case == "rows" else "frame"
    )
    assert tab.run(OVERFLOW) == 0
    assert tab.complaints() == []
    tab.close()


def test_a_gap_is_shown_under_the_cursor(browser, tmp_path):
    frames = np.concatenate((np.arange(0, 100), np.arange(300, 400)))
    events = (DecodedEvent(0, 100, "stomach", 0.9, "stomach"),)
    tab = browser.open(write_report(write_folder(tmp_path, events, scores_for(events, frames))))
    rows = tab.run("[0, 99, 100, 299, 300, 399].map(f => study.rowAt(f))")
    assert rows == [0, 99, -1, -1, 100, 199]
    assert tab.run("[0, 99, 100, 199].map(r => study.frameOf(r))") == [0, 99, 300, 399]
    tab.close()


AXIS_LABELS = """(() => {
  const pen = CanvasRenderingContext2D.prototype, fillText = pen.fillText, labels = [];
  pen.fillText = (text) => labels.push(text);
  timeline.draw();
  pen.fillText = fillText;
  return labels;
})()"""


@pytest.mark.parametrize(
    ("rate", "labels"),
    [
        (8.0, ["0 s", "10 s", "20 s", "30 s", "40 s", "50 s"]),  # 50 s
        (4.0, ["0 s", "15 s", "30 s", "45 s", "60 s", "75 s", "90 s"]),
        (2.0, ["0 min", "0:30 min", "1 min", "1:30 min", "2 min", "2:30 min", "3 min"]),  # 200 s
        (0.2, ["0 min", "5 min", "10 min", "15 min", "20 min", "25 min", "30 min"]),  # 2000 s
        (0.02, ["0:00 h", "1:00 h", "2:00 h", "3:00 h", "4:00 h", "5:00 h"]),  # 5.6 h
    ],
)  # fmt: skip
def test_the_time_axis_has_units_that_fit_the_length(browser, tmp_path, rate, labels):
    tab = browser.open(write_report(write_folder(tmp_path, run={**RUN, "rate": rate})))
    assert tab.run(AXIS_LABELS) == labels
    tab.close()


def test_the_time_axis_follows_uneven_times(browser, tmp_path):
    """The first half at 1 frame a second, the second at 10: 100 s lie at half the width."""
    times = np.r_[np.arange(100), 100 + np.arange(100) / 10]
    events = (DecodedEvent(0, 200, "colon", 0.9, "colon"),)
    scores = scores_for(events, range(200), times=times)
    tab = browser.open(write_report(write_folder(tmp_path, events, scores)))
    assert tab.run("study.frameAtTime(100)") == pytest.approx(100)
    # The last frame begins at 109.9 s and lasts for the median period of 1 s.
    assert tab.run("[0, 50, 150, 200].map(study.seconds)") == pytest.approx([0, 50, 105, 110.9])
    ticks = tab.run(
        "(() => { const pen = CanvasRenderingContext2D.prototype, moveTo = pen.moveTo, xs = [];"
        "pen.moveTo = (x) => xs.push(x); timeline.draw(); pen.moveTo = moveTo;"
        "const width = document.querySelector('.axis .lane').clientWidth;"
        "return xs.map(x => x / width); })()"
    )
    # 110 s over nine labels: a tick every 15 s
    assert ticks == pytest.approx([0, 0.075, 0.15, 0.225, 0.3, 0.375, 0.45, 0.75], abs=0.003)
    tab.close()
