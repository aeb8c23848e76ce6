"""The page in a browser: headless Chromium, as a person would use it."""

import json
import re
import zlib

import numpy as np
import pytest

from enteron.decoding.events import DecodedEvent
from enteron.labels import FINDINGS, REGIONS
from enteron.report import write_report
from enteron.types import Annotation, Segment, Unit
from tests.report.conftest import OVERFLOW
from tests.report.making import EVENTS, scores_for, write_folder

MANY = (
    *EVENTS[:6],
    *(
        DecodedEvent(60 + 11 * n, 64 + 11 * n, FINDINGS[n % 9], 0.3 + n % 7 / 10, "small intestine")
        for n in range(30)
    ),
)
TRUTH: Annotation = Annotation(
    "s1",
    Unit.FRAME,
    (Segment(0, 130, ("stomach",)), Segment(130, 400, ("small intestine", "blood"))),
)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A page with everything on it: pictures, thirty findings, annotation."""
    folder = write_folder(tmp_path_factory.mktemp("r"), MANY, pictures=True)
    return write_report(folder, truth=TRUTH)


@pytest.fixture
def tab(browser, report):
    tab = browser.open(report)
    yield tab
    assert tab.complaints() == []
    assert tab.requests() == []
    tab.close()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_and_does_not_complain(browser, report, width, dark):
    tab = browser.open(report, width, dark=dark)
    tab.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    tab.settle()
    assert tab.run(OVERFLOW) == 0
    # Nothing but tables, which scroll by themselves, is wider than the page.
    outside = tab.run(
        "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, .lane') && "
        "e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert outside == []
    assert tab.complaints() == []
    assert tab.requests() == []
    tab.close()


def test_all_events_are_there(tab, report):
    events = json.loads((report.parent / "events.json").read_text())["events"]
    shown = tab.run(
        "[...document.querySelectorAll('.card')].map(c => [Number(c.dataset.event), "
        "c.querySelector('h3, h4').textContent.trim(), Number(c.dataset.start)])"
    )
    assert sorted(shown) == [[n, e["label"], e["start"]] for n, e in enumerate(events)]
    marks = tab.run("[...document.querySelectorAll('.mark')].map(m => Number(m.dataset.event))")
    assert sorted(marks) == list(range(len(events)))


def test_a_click_in_a_lane_leads_to_the_picture(tab):
    for number in (8, 20, 35):
        tab.click(f'.mark[data-event="{number}"]')
        card = f"document.getElementById('event-{number}')"
        assert tab.run(f"{card}.classList.contains('is-lit') && document.activeElement === {card}")
        box = tab.run(f"(b => [b.top, b.bottom, innerHeight])({card}.getBoundingClientRect())")
        assert 50 < box[0] < box[1] < box[2]  # whole, and below the bar at the top
        tab.wait_for(f"{card}.querySelector('img').naturalWidth === 96")
    assert tab.run("document.querySelectorAll('.card.is-lit').length") == 1


def test_a_filtered_card_is_shown_when_its_mark_is_clicked(tab):
    tab.click('.chip[data-label="polyp"]')
    labels = (
        "[...new Set([...document.querySelectorAll('#cards .card')]"
        ".filter(c => !c.hidden).map(c => c.dataset.label))]"
    )
    assert tab.run(labels) == ["polyp"]
    assert tab.run("document.getElementById('shown').textContent") == "3 of 31 shown"
    tab.click('.mark[data-event="6"]')  # active bleeding
    assert tab.run("document.getElementById('event-6').hidden") is False


def test_a_card_marks_its_event_in_the_lanes(tab):
    tab.click("#event-20 h3")
    assert tab.run("[...document.querySelectorAll('.mark.is-lit')].map(m => m.dataset.event)") == [
        "20"
    ]
    assert tab.run("document.getElementById('strip-needle').hidden") is False
    tab.click("#event-21 .show")
    assert tab.run("[...document.querySelectorAll('.mark.is-lit')].map(m => m.dataset.event)") == [
        "21"
    ]
    inside = tab.run(
        "(() => { const m = document.querySelector('.mark.is-lit').getBoundingClientRect(),"
        "l = document.querySelector('.mark.is-lit').closest('.lane').getBoundingClientRect();"
        "return m.left >= l.left && m.right <= l.right; })()"
    )
    assert inside
    assert tab.run("timeline.view().z") > 1


@pytest.mark.parametrize("key", ["score", "start", "label"])
def test_sorting(tab, key):
    tab.run(
        f"(() => {{ const s = document.getElementById('sort'); s.value = '{key}';"
        "s.dispatchEvent(new Event('change')); })()"
    )
    cards = tab.run(
        "[...document.querySelectorAll('#cards .card')].map(c => Number(c.dataset.event))"
    )
    events = {n: e for n, e in enumerate(MANY) if n in cards}
    assert len(events) == len(cards) == 31
    values = {
        "score": [-(events[n].score or 0) for n in cards],
        "start": [events[n].start for n in cards],
        "label": [["pylorus", *FINDINGS].index(events[n].label) for n in cards],
    }[key]
    assert values == sorted(values)


def test_zoom_by_buttons_keys_wheel_and_drag(tab):
    zoom = "timeline.view().z"
    tab.click('button[data-action="in"]')
    assert tab.run(zoom) == pytest.approx(1.7)
    tab.click('button[data-action="whole"]')
    assert tab.run(zoom) == 1
    tab.run("document.getElementById('tracks').focus()")
    tab.key("+")
    assert tab.run(zoom) == pytest.approx(1.7)
    tab.key("-")
    assert tab.run(zoom) == pytest.approx(1)
    x, y = tab.middle(".transit-lane")
    under = f"timeline.view().x + {0.5} / timeline.view().z"
    tab.mouse("mouseWheel", x, y, deltaX=0, deltaY=-120, modifiers=2)
    tab.settle()
    assert tab.run(zoom) > 1.3
    assert tab.run(under) == pytest.approx(0.5, abs=0.01)  # what is under the pointer stays there
    left = tab.run("timeline.view().x")
    tab.mouse("mousePressed", x, y, button="left", buttons=1)
    for moved in (20, 60, 100):
        tab.mouse("mouseMoved", x - moved, y, button="left", buttons=1)
    tab.mouse("mouseReleased", x - 100, y, button="left")
    tab.settle()
    assert tab.run("timeline.view().x") > left
    tab.key("0")
    assert tab.run(zoom) == 1


def test_a_plain_wheel_scrolls_the_page(tab):
    x, y = tab.middle(".transit-lane")
    tab.mouse("mouseWheel", x, y, deltaX=0, deltaY=120)
    tab.settle()
    assert tab.run("timeline.view().z") == 1


def test_the_cursor_shows_frame_time_region_and_labels(tab):
    box = tab.run(
        "(() => { const l = document.querySelector('.transit-lane');"
        "l.scrollIntoView({block: 'center', behavior: 'instant'});"
        "const b = l.getBoundingClientRect(); return [b.left, b.width, b.top + b.height / 2]; })()"
    )
    scores = scores_for(MANY)
    for frame in (61, 150, 350):
        tab.mouse("mouseMoved", box[0] + box[1] * (frame + 0.5) / 400, box[2])
        tab.settle()
        readout = tab.run("document.getElementById('readout').textContent")
        seconds = frame // 2
        assert readout.startswith(f"frame {frame} · 0:{seconds // 60:02d}:{seconds % 60:02d} · ")
        region = next(e.label for e in MANY[:6] if e.start <= frame < e.stop and e.label in REGIONS)
        assert region in readout
        best = int(scores.values[frame, 5:].argmax())
        if scores.values[frame, 5 + best] >= 0.1:
            assert re.search(r"· [a-z ]+ 0\.[789]\d", readout)


def test_curves_show_the_scores(tab):
    """The height of the drawn curve at full width is the maximum of the rows under each pixel."""
    tab.run("document.getElementById('more-curves').open = true")
    tab.settle()
    width, height, tops = tab.run(
        "(() => { const c = document.querySelector('.curve canvas[data-column=\"2\"]');"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, tops = [];"
        "for (let x = 0; x < c.width; x++) { let y = 0;"
        "while (y < c.height && d[4 * (y * c.width + x) + 3] === 0) y++; tops.push(c.height - y); }"
        "return [c.width, c.height, tops]; })()"
    )
    stomach = scores_for(MANY).values[:, 2]
    edges = np.arange(width + 1) * 400 / width
    for pixel, top in enumerate(tops):
        first, last = int(edges[pixel]), int(np.ceil(edges[pixel + 1] - 1e-9))
        wanted = height * float(stomach[first : max(last, first + 1)].max())
        assert top == pytest.approx(wanted, abs=1)


def test_pictures_are_enlarged(tab):
    tab.click("#event-20 .enlarge")
    assert tab.run("document.getElementById('viewer').open")
    first = tab.run("document.getElementById('viewer-caption').textContent")
    tab.key("ArrowRight")
    assert tab.run("document.getElementById('viewer-caption').textContent") != first
    tab.run("document.getElementById('viewer').close()")


def test_neighbours_on_demand(tab):
    visible = "document.querySelector('#event-20 .neighbours img').checkVisibility()"
    assert tab.run(visible) is False
    tab.click("#event-20 .neighbours summary")
    tab.wait_for(visible)
    assert tab.run("document.querySelectorAll('#event-20 .neighbours img').length") == 4


def test_lanes_can_be_walked_with_the_keyboard(tab):
    stops = tab.run(
        "[...document.querySelectorAll('.lane.finding')]"
        ".map(l => l.querySelectorAll('.mark[tabindex=\"0\"]').length)"
    )
    assert set(stops) <= {0, 1}
    tab.run("document.querySelector('.lane.finding .mark').focus()")
    first = tab.run("document.activeElement.dataset.event")
    tab.key("ArrowRight")
    assert tab.run("document.activeElement.matches('.mark')")
    assert tab.run("document.activeElement.dataset.event") != first


CONTRASTS = """(() => {
  const channel = (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = (c) => [0.2126, 0.7152, 0.0722].reduce((s, w, i) => s + w * channel(c[i] / 255), 0);
  const paper = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  const bad = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement, text = walker.currentNode.textContent.trim();
    if (!text || e.closest('script, style, dialog, noscript') || !e.checkVisibility()) continue;
    const a = light(parse(getComputedStyle(e).color)), b = light(paper(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push([ratio.toFixed(2), text.slice(0, 30)]);
  }
  return bad;
})()"""


@pytest.mark.parametrize("dark", [False, True])
def test_contrast_of_every_text(browser, report, dark):
    tab = browser.open(report, dark=dark)
    tab.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert tab.run(CONTRASTS) == []
    paper = tab.run("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(14, 20, 24)" if dark else "rgb(244, 246, 247)")
    tab.close()


def test_the_theme_can_be_chosen(browser, report):
    tab = browser.open(report, dark=True)
    paper = "getComputedStyle(document.body).backgroundColor"
    tab.click("#theme")
    assert tab.run("document.getElementById('theme').textContent") == "Theme: light"
    assert tab.run(paper) == "rgb(244, 246, 247)"
    tab.click("#theme")
    assert tab.run(paper) == "rgb(14, 20, 24)"
    tab.click("#theme")
    assert tab.run("document.documentElement.dataset.theme === undefined")
    assert tab.complaints() == []
    tab.close()


def test_it_prints(tab):
    """Pages with text, pictures and curves; the view on screen is as it was afterwards."""
    tab.click('button[data-action="in"]')
    pdf = tab.pdf()
    assert pdf.startswith(b"%PDF")
    pages = len(re.findall(rb"/Type\s*/Page\b", pdf))
    assert pages >= 3
    assert len(re.findall(rb"/Subtype\s*/Image\b", pdf)) >= 31
    content = b"".join(_streams(pdf))
    assert content.count(b"Tj") + content.count(b"TJ") > 100
    tab.settle()
    assert tab.run("timeline.view().z") == pytest.approx(1.7)


def _streams(pdf: bytes) -> list[bytes]:
    """Unpacked content streams."""
    streams = []
    for match in re.finditer(rb"stream\r?\n", pdf):
        try:
            streams.append(zlib.decompressobj().decompress(pdf[match.end() :]))
        except zlib.error:
            continue
    return streams


def test_print_is_light_and_without_controls(browser, report):
    tab = browser.open(report, dark=True)
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    tab.call("Emulation.setEmulatedMedia", media="print", features=dark)
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.run("getComputedStyle(document.body).color") == "rgb(23, 33, 43)"
    for selector in (".bar", "#controls", "#filters", ".neighbours", ".show"):
        shown = f"getComputedStyle(document.querySelector('{selector}')).display"
        assert tab.run(shown) == "none"
    tab.close()
