"""The page as a file: its text, its elements, and what it never contains."""

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import numpy as np
import pytest

from enteron.decoding.events import DecodedEvent
from enteron.errors import EnteronError
from enteron.folders.reading import load_reading
from enteron.labels import LABELS
from enteron.report import write_report
from enteron.report.page import calibrated_scores, embedded_json
from enteron.types import Annotation, Segment, Unit
from tests.report.making import EVENTS, RUN, edit_json, scores_for, write_folder


class Parsed(HTMLParser):
    """Elements by their attributes, scripts, and the text that a reader sees."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._inside: list[str] = []
        self.feed(html)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self._inside.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        if tag in self._inside:
            while self._inside.pop() != tag:
                pass

    def handle_data(self, data):
        if "script" in self._inside:
            self.scripts[-1] += data
        elif "style" not in self._inside:
            self.words.append(data)

    def all(self, kind: str) -> list[dict[str, str]]:
        """Attributes of the elements of a class."""
        return [a for _, a in self.elements if kind in a.get("class", "").split()]


def page(folder, **options) -> Parsed:
    return Parsed(write_report(folder, **options).read_text())


def test_every_event_has_a_mark_and_a_card(tmp_path):
    parsed = page(write_folder(tmp_path))
    events = json.loads((tmp_path / "events.json").read_text())["events"]
    marks = {mark["data-event"]: mark for mark in parsed.all("mark")}
    cards = {card["data-event"]: card for card in parsed.all("card")}
    assert set(marks) == set(cards) == {str(n) for n in range(len(events))}
    for number, event in enumerate(events):
        mark, card = marks[str(number)], cards[str(number)]
        assert mark["href"] == f"#{card['id']}"
        assert mark["aria-label"].startswith(f"{event['label']}, frame {event['start']:,}")
        assert (int(card["data-start"]), int(card["data-stop"])) == (event["start"], event["stop"])
        at = float(re.search(r"--start:([\d.e-]+)", mark["style"])[1])  # type: ignore[index]
        assert at == pytest.approx(event["start"] / 400)


def test_a_physician_s_questions_are_answered(tmp_path):
    text = page(write_folder(tmp_path)).text
    for wanted in (
        "3 possible findings of 3 kinds, to be checked by a physician. 5 regions recognised.",
        "Gastric transit 40 s From frame 40 (0:00:20) to frame 120 (0:01:00).",
        "Small-bowel transit 1 min 40 s",
        "Colon reached First recognised at frame 320 (0:02:40), confidence 0.97.",
        "2 could not be read.",
        "358 analysed one by one (90 %)",
        "40 almost identical to an earlier frame, whose result was used",
        "2 unreadable frames: the file is empty.",
        "Unreadable: 5, 77.",
        "In doubt: 1 of 4 events: polyp at frame 350 confidence 0.41",
        "Trained on 16 studies (16,000 frames).",
        "Studies 16",
        "For research only.",
        "This reading was made without pictures.",
        "No event reported for: active bleeding, angiectasia, erythema",
        "of all events given 0.8, about eight in ten should be real",
    ):
        assert wanted in text


def test_pictures_are_embedded(tmp_path):
    parsed = page(write_folder(tmp_path, pictures=True))
    images = [a["src"] for tag, a in parsed.elements if tag == "img" and a.get("src")]
    assert len(images) == 4 + 4 * 4 + 5 * 3  # best frames, neighbours, first images
    assert all(source.startswith("data:image/jpeg;base64,") for source in images)
    assert "Events with a picture: 4 of 4." in parsed.text
    assert "everything outside the measured field of view was made black" in parsed.text


def test_nothing_is_loaded_from_anywhere(tmp_path):
    html = write_report(write_folder(tmp_path, pictures=True)).read_text()
    parsed = Parsed(html)
    for tag, attributes in parsed.elements:
        for name in ("src", "href", "action", "srcset"):
            value = attributes.get(name, "")
            assert value.startswith(("#", "data:")) or not value, (tag, value)
    assert "url(" not in html
    assert "@import" not in html
    policy = next(a["content"] for t, a in parsed.elements if a.get("http-equiv"))
    assert "default-src 'none'" in policy
    digest = b64encode(sha256(parsed.scripts[-1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy


def test_neither_paths_nor_names_of_folders_are_shown(tmp_path):
    html = write_report(write_folder(tmp_path / "Jane_Doe")).read_text()
    assert "Jane" not in html
    assert "/patients" not in html
    assert "enteron read study --model lite" in html


HOSTILE = "</script><script>alert(1)</script>\"'<img src=x onerror=alert(2)>\u2028{{7*7}}"


def test_hostile_text_stays_text(tmp_path):
    run = {
        **RUN,
        "command": HOSTILE,
        "preset": HOSTILE,
        "scaling": HOSTILE,
        "rate_note": HOSTILE,
        "versions": {HOSTILE: HOSTILE},
        "unreadable": {"count": 1, "frames": [1], "reasons": {HOSTILE: 1}},
        "model": {"backbone": HOSTILE, "hash": HOSTILE, "trained_on": {HOSTILE: HOSTILE}},
        "runtime": {"name": HOSTILE, "why": HOSTILE},
    }
    plain = page(write_folder(tmp_path / "a"))
    parsed = page(write_folder(tmp_path / "b", run=run))
    assert len(parsed.scripts) == len(plain.scripts) == 2
    assert parsed.scripts[-1] == plain.scripts[-1]
    assert not [a for tag, a in parsed.elements if "onerror" in a]
    assert "alert(1)" in parsed.text  # shown, not run
    assert "49" not in next(w for w in parsed.words if "7*7" in w)


def test_a_hostile_id_is_refused(tmp_path):
    folder = write_folder(tmp_path, scores=scores_for(EVENTS, study="77"))
    edit_json(folder / "events.json", study=HOSTILE)
    with pytest.raises(
        EnteronError, match=r"events.json: the study's id '</script>.* contains '<'"
    ):
        write_report(folder)
    edit_json(folder / "events.json", study="77")
    edit_json(folder / "run.json", study=HOSTILE)
    with pytest.raises(EnteronError, match=r"run.json: the study's id '</script>.* contains '<'"):
        write_report(folder)


def test_embedded_json_cannot_end_its_element():
    data = {"text": "</script><!-- \u2028\u2029 & ]]>", "é": [1.5, None]}
    text = str(embedded_json(data))
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == data


@pytest.mark.parametrize(
    ("events", "frames", "wanted"),
    [
        ((), range(400), "The model reports nothing in this study"),
        ((), range(1), "The model reports nothing in this study"),
        (EVENTS[:3], range(400), "3 regions recognised, and no finding reported."),
        (EVENTS[6:7], range(400), "1 possible finding of one kind"),
        (
            (DecodedEvent(0, 1, "colon", 0.5, "colon"), DecodedEvent(0, 1, "polyp", 0.9, "colon")),
            range(1),
            "1 possible finding of one kind",
        ),
    ],
)
def test_little_to_say(tmp_path, events, frames, wanted):
    parsed = page(write_folder(tmp_path, events, scores_for(events, frames)))
    assert wanted in parsed.text
    assert len(parsed.all("card")) == len(events)
    if not any(event.label not in ("stomach", "mouth", "esophagus", "colon") for event in events):
        assert "No landmark and no finding was reported in this study." in parsed.text


def test_rows_are_called_rows(tmp_path):
    parsed = page(write_folder(tmp_path, unit=Unit.INDEX))
    assert "rows 150 to 160" in parsed.text.lower()
    assert "The frame rate of this study is not known" in parsed.text
    assert "80 rows" in parsed.text


def test_gaps_are_counted(tmp_path):
    frames = np.concatenate((np.arange(0, 300), np.arange(340, 400)))
    parsed = page(write_folder(tmp_path, scores=scores_for(EVENTS, frames)))
    assert "40 frame numbers are missing in 1 gap (the longest: 40 frames)" in parsed.text
    assert len(parsed.all("gap")) == 1


def test_unreadable_frames_are_no_gaps(tmp_path):
    """`read` leaves unreadable frames out of the scores, and counts them among the rows."""
    frames = np.delete(np.arange(400), [5, 77, *range(300, 310)])
    folder = write_folder(tmp_path, scores=scores_for(EVENTS, frames))
    edit_json(folder / "run.json", rows=390, scored=388, notes=["the header promises 410 frames"])
    parsed = page(folder)
    assert "390 2 could not be read. 10 missing in the numbering." in parsed.text
    assert "348 analysed one by one" in parsed.text
    assert "10 frame numbers are missing in 1 gap" in parsed.text
    assert "The header promises 410 frames." in parsed.text
    assert len(parsed.all("gap")) == 1
    assert len(parsed.all("unreadable")) == 2


def test_a_recording_that_is_cut_off_says_so_at_the_top(tmp_path):
    events = EVENTS[:3]
    folder = write_folder(tmp_path, events, scores_for(events, range(120)))
    assert "Incomplete" not in page(folder).text
    sentence = "the recording is cut off: 80 of 200 frames are missing at its end"
    edit_json(folder / "run.json", missing={"frames": 80, "seconds": 40.0, "sentence": sentence})
    text = page(folder).text
    assert text.index(sentence[1:]) < text.index("Gastric transit")
    assert "The file ends in the stomach" in text
    assert "The recording ends in" not in text


def test_many_gaps_and_events_stay_bounded(tmp_path):
    frames = np.arange(3000) * 2 + np.arange(3000) // 3  # a gap after every third row
    events = [DecodedEvent(2 * n + n // 3, 2 * n + n // 3 + 1, "blood", 0.5) for n in range(2000)]
    parsed = page(write_folder(tmp_path, events, scores_for(events, frames)))
    assert len(parsed.all("gap")) == 400
    assert "999 frame numbers are missing in 999 gaps (the longest: 1 frame)" in parsed.text
    assert len(parsed.all("card")) == 2000


def test_an_assumed_rate_is_called_one(tmp_path):
    folder = write_folder(tmp_path)
    edit_json(folder / "run.json", rate_note="assumed")
    assert "Times rest on an assumed rate of 2 frames a second" in page(folder).text
    edit_json(folder / "run.json", rate=None)
    parsed = page(folder)
    assert "The frame rate of this study is not known" in parsed.text
    assert "80 frames" in parsed.text
    assert "0:00:" not in parsed.text


def test_thresholds_mark_events_in_doubt(tmp_path):
    """A threshold applies to frames: the highest of them counts, not the event's confidence.

    event     confidence   highest frame   threshold
    blood     0.91         0.95            0.90         close to it
    erosion   0.62         0.95            0.30         well above it
    polyp     0.41         0.95            none         of low confidence
    pylorus   0.70         0.95            0.90         not a finding: thresholds say nothing
    """
    folder = write_folder(tmp_path)
    thresholds = {"blood": 0.9, "erosion": 0.3, "polyp": None, "pylorus": 0.9}
    edit_json(folder / "run.json", thresholds=thresholds)
    text = page(folder).text
    assert "or if its highest frame probability lies less than 0.1 above the threshold" in text
    assert (
        "In doubt: 2 of 4 events: polyp at frame 350 confidence 0.41 "
        "blood at frame 150 confidence 0.91; highest probability 0.95, threshold 0.90"
    ) in text


def test_events_judged_by_what_surrounds_them_are_in_doubt_by_their_confidence(tmp_path):
    """Thresholds then only say which runs of scores are looked at, and are low."""
    folder = write_folder(tmp_path)
    context = {
        "scales": [100.0],
        "peak": 1.0,
        "duration": 0.0,
        "region": 0.0,
        "around": [0.5],
        "constants": {"blood": 0.0},
        "candidates": {"blood": 0.9},
        "threshold": 0.3,
        "clinical": None,
    }
    edit_json(folder / "run.json", thresholds={"blood": 0.9}, event_context=context)
    text = page(folder).text
    assert "In doubt: 1 of 4 events: polyp at frame 350 confidence 0.41" in text
    assert "above the threshold" not in text
    assert "Findings are judged by their scores and those of the minutes around" in text


@pytest.mark.parametrize("rate", [5e-324, 1e300])
def test_a_rate_that_no_clock_can_show_is_refused(tmp_path, rate):
    folder = write_folder(tmp_path)
    edit_json(folder / "run.json", rate=rate)
    with pytest.raises(EnteronError, match="rate"):
        page(folder)


def test_without_thresholds_nothing_is_said_about_them(tmp_path):
    text = page(write_folder(tmp_path)).text
    section = text[text.index("Events in doubt") :]
    assert section.startswith(
        "Events in doubt An event is in doubt if its confidence is below one half. "
        "It could as well be missing. In doubt: 1 of 4 events: polyp at frame 350 confidence 0.41"
    )
    assert "threshold" not in text
    assert "Not looked for" not in text
    assert "or it is not set up to report this; that does not prove absence." in text


def test_calibrated_probabilities_are_compared_with_thresholds(tmp_path):
    """The decoder compares thresholds with calibrated scores, so the page does too."""
    folder = write_folder(tmp_path)
    bias = dict.fromkeys(LABELS, -2.0)
    calibration = {"temperature": 1.0, "bias": bias}
    edit_json(folder / "run.json", frame_calibration=calibration, thresholds={"blood": 0.65})
    # 0.95 becomes sigmoid(2.944 - 2) = 0.72
    assert "highest probability 0.72, threshold 0.65" in page(folder).text


def test_no_event_in_doubt(tmp_path):
    folder = write_folder(tmp_path, EVENTS[:-1])
    edit_json(folder / "run.json", thresholds={"blood": 0.5})
    assert "None of the events is in doubt." in page(folder).text


def test_findings_that_are_never_reported_are_not_called_absent(tmp_path):
    folder = write_folder(tmp_path)
    edit_json(folder / "run.json", thresholds={"ulcer": None, "hematin": None, "blood": 0.5})
    text = page(folder).text
    assert "No event reported for: active bleeding, angiectasia, erythema, lymphangio" in text
    assert "Not looked for: hematin, ulcer. These are never reported with these settings" in text
    edit_json(folder / "run.json", thresholds={"ulcer": None})
    assert "Not looked for: ulcer. This is never reported with these settings" in page(folder).text


def test_long_lists_about_the_model_are_folded(tmp_path):
    """Training and results are one sentence each; their figures are behind it."""
    folder = write_folder(tmp_path)
    trained_on = {
        "studies": 9,
        "frames": 3600,
        "validation studies": 1,
        "validation frames": 400,
        "frames by label": dict.fromkeys(LABELS, 7),
        "regime": "frozen",
    }
    model = {**RUN["model"], "trained_on": trained_on, "results": {"macro f1": 0.25}}
    edit_json(folder / "run.json", model=model)
    html = write_report(folder).read_text()
    text = Parsed(html).text
    assert (
        "Trained on 9 studies (3,600 frames), checked on 1 study (400 frames) that it was not "
        "trained on. Show all 22 values Studies 9"
    ) in text
    assert "the image encoder was kept as it was" in text
    assert "frozen" not in text
    assert "F1 score, mean of all labels 0.250" in text
    folded = re.findall(r"<details><summary>Show all.*?</details>", html, re.DOTALL)
    assert sum("Frames by label: ulcer" in block for block in folded) == 1
    assert html.count("Frames by label: ulcer") == 1


JARGON = (
    "sureness", "surest", "tiou", "kappa", "hysteresis", "semi-markov", "empty file", "frozen",
    "annotated by people", "likeliest", " 1 gaps", " 1 frames", " 1 events",
)  # fmt: skip


@pytest.mark.parametrize("gap", [1, 40])
def test_plain_words_and_correct_plurals(tmp_path, gap):
    frames = np.concatenate((np.arange(0, 300), np.arange(300 + gap, 400)))
    run = {**RUN, "unreadable": {"count": 1, "frames": [5], "reasons": {"the file is empty": 1}}}
    folder = write_folder(tmp_path, EVENTS[5:], scores_for(EVENTS[5:], frames), run)
    parsed = page(folder, truth=truth(colon=(0, 400), blood=(155, 170)))
    labels = " ".join(a.get("aria-label", "") + a.get("title", "") for _, a in parsed.elements)
    script = parsed.scripts[-1]
    for word in JARGON:
        assert word not in f" {parsed.text} {labels}".lower(), word
        assert word not in script.lower(), word
    assert "1 unreadable frame: the file is empty." in parsed.text
    (mark,) = parsed.all("gap")
    if gap == 1:
        assert "1 frame number is missing in 1 gap. What happened" in parsed.text
        assert mark["title"] == "frame 300 is missing"
    else:
        assert "40 frame numbers are missing in 1 gap (the longest: 40 frames)." in parsed.text
        assert mark["title"] == "frames 300 to 339 are missing"


def test_times_of_an_uneven_study(tmp_path):
    """Stated times: events end one frame period after their last frame, also before a gap."""
    frames = np.r_[0:300, 340:400]
    times = np.r_[np.arange(300) / 2, 1000 + np.arange(60) / 2]
    events = (
        DecodedEvent(200, 300, "small intestine", 0.9, "small intestine"),
        DecodedEvent(340, 400, "colon", 0.9, "colon"),
        DecodedEvent(298, 300, "polyp", 0.8, "small intestine"),
    )
    folder = write_folder(tmp_path, events, scores_for(events, frames, times=times))
    text = page(folder).text
    assert "frame 200 (0:01:40) frame 299 (0:02:29) 50 s" in text
    assert "frame 340 (0:16:40) frame 399 (0:17:09) 30 s" in text
    assert "at 0:02:29, for 1.0 s" in text
    assert "Duration 17 min" in text


def truth(**labels: tuple[int, int]) -> Annotation:
    segments = [Segment(*span, (name.replace("_", " "),)) for name, span in labels.items()]
    return Annotation("s1", Unit.FRAME, tuple(segments))


def test_truth_stands_beside_the_prediction(tmp_path):
    annotated = truth(
        stomach=(0, 130),
        small_intestine=(130, 310),
        colon=(310, 400),
        blood=(155, 170),
        ulcer=(5, 9),
    )
    parsed = page(write_folder(tmp_path), truth=annotated)
    marks = {mark["aria-label"] for mark in parsed.all("truth")}
    assert "annotated: blood, frame 155 (0:01:17) to 169" in marks
    assert len(marks) == 5
    assert "There is a reference annotation of this study" in parsed.text
    assert "overlap with a reported event of the same kind: 1 of 2." in parsed.text
    assert "where nothing of the kind is annotated: 2 (36.00 per hour of recording)." in parsed.text
    assert "small intestine 10 frames early" in parsed.text
    assert "colon 10 frames late" in parsed.text


def test_cut_truth_is_joined(tmp_path):
    pieces = (
        Segment(0, 50, ("colon",)),
        Segment(50, 60, ("colon", "polyp")),
        Segment(60, 90, ("colon",)),
    )
    parsed = page(write_folder(tmp_path), truth=Annotation("s1", Unit.FRAME, pieces))
    marks = sorted(mark["aria-label"] for mark in parsed.all("truth"))
    assert marks == [
        "annotated: colon, frame 0 (0:00:00) to 89",
        "annotated: polyp, frame 50 (0:00:25) to 59",
    ]


def test_truth_of_another_study_or_unit_is_refused(tmp_path):
    folder = write_folder(tmp_path / "a")
    with pytest.raises(EnteronError, match="the truth is of study s2, the reading of study s1"):
        write_report(folder, truth=Annotation("s2", Unit.FRAME))
    rows = write_folder(tmp_path / "b", unit=Unit.INDEX)
    with pytest.raises(EnteronError, match="counts in 'index', its truth in 'frame'"):
        write_report(rows, truth=truth(colon=(0, 9)))


def test_the_page_is_the_same_every_time(tmp_path):
    folder = write_folder(tmp_path, pictures=True)
    first = write_report(folder).read_bytes()
    assert write_report(folder).read_bytes() == first


def test_every_label_has_a_curve(tmp_path):
    parsed = page(write_folder(tmp_path))
    columns = {
        a["data-column"] for tag, a in parsed.elements if tag == "canvas" and "data-column" in a
    }
    assert columns == {str(column) for column in range(len(LABELS))}


def test_curves_show_what_the_decoder_saw(tmp_path):
    folder = write_folder(tmp_path / "reading")
    plain = calibrated_scores(load_reading(folder))
    bias = dict.fromkeys(LABELS, -1.0)
    edit_json(folder / "run.json", frame_calibration={"temperature": 0.5, "bias": bias})
    shown = calibrated_scores(load_reading(folder))
    p = np.clip(plain.values[:50].astype(np.float64), 1e-6, 1 - 1e-6)
    expected = 1 / (1 + np.exp(-(np.log(p / (1 - p)) / 0.5 - 1.0)))
    np.testing.assert_allclose(shown.values[:50], expected, atol=1e-5)
    assert shown.study == plain.study
    write_report(folder)


def test_a_calibration_without_every_label_is_refused(tmp_path):
    folder = write_folder(tmp_path / "reading")
    edit_json(folder / "run.json", frame_calibration={"temperature": 0.5, "bias": {"mouth": 1.0}})
    with pytest.raises(EnteronError, match=r"run\.json is damaged at 'frame_calibration"):
        write_report(folder)
