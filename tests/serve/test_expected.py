"""What people who read capsule studies expect of a reader, in Chromium: what known tools have.

`test_chromium.py` follows one whole reading; here each expectation is tried on its own.
"""

import json
import urllib.request

import cv2
import numpy as np
import pytest

from tests.serve.making import HEADERS, server, write_root
from tests.serve.scenario import STATE, arrived, jump
from tests.serve.test_reading import write_root_again

READY = "document.querySelector('#reader.is-complete')"
SHOWN = "enteron.frameAt(enteron.player.position)"


@pytest.fixture(scope="module")
def read_only(tmp_path_factory):
    """A root for tests that decide nothing that another one looks at."""
    return write_root(tmp_path_factory.mktemp("root"), pictures=True)


@pytest.fixture
def root(tmp_path):
    return write_root(tmp_path, pictures=True)


def text(tab, name: str) -> str:
    return tab.run(f"document.getElementById('{name}').textContent")


def open_study_page(browser, address: str, width: int = 1400, height: int = 950):
    tab = browser.open(f"{address}/read/s1", width, height)
    tab.wait_for(READY)
    tab.wait_for("document.getElementById('source').textContent === ''")
    arrived(tab)
    return tab


def post(address: str, study: str, action: dict, expected: int = 0) -> None:
    body = json.dumps({"action": action, "expected": expected}).encode()
    path = f"{address}/api/studies/{study}/actions"
    request = urllib.request.Request(path, body, {**HEADERS, "origin": address})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


# ---- opening


def write_cards(root, numbers) -> None:
    card = np.full((96, 96, 3), (140, 60, 20), np.uint8)  # blue, as OpenCV orders colours
    cv2.putText(card, "Doe, Jane", (6, 50), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (255, 255, 255), 1)
    for number in numbers:
        cv2.imwrite(str(root / "studies" / "s1" / f"frame_{number:06d}.png"), card)
    write_root_again(root)


def test_a_study_opens_at_its_first_frame_that_can_be_shown(browser, tmp_path):
    root = write_root(tmp_path)
    write_cards(root, range(7))
    with server(root) as address:
        tab = open_study_page(browser, address)
        tab.wait_for(f"{SHOWN} === 7")
        arrived(tab)
        assert tab.run("Boolean(enteron.player.frames.get(7).bitmap)")
        assert tab.page.locator("#opened").is_visible()
        assert "the 7 frames before this one may hold a name" in text(tab, "opened")
        # The cards are one key away, and hidden until they are asked for.
        tab.key("Home")
        arrived(tab)
        assert tab.run(SHOWN) == 0
        assert not tab.page.locator("#opened").is_visible()
        assert "may hold a name. Press V" in text(tab, "stage")
        tab.run("enteron.activity.sendViewed()")
        tab.wait_for(f"{STATE}.viewed.length > 0")
        assert tab.run(f"{STATE}.viewed") == [[7, 8]]  # what was withheld was not looked at
        tab.key("v")
        tab.wait_for("enteron.player.frames.get(0).bitmap")
        arrived(tab)
        tab.run("enteron.activity.sendViewed()")
        tab.wait_for(f"{STATE}.viewed.length === 2")
        assert tab.run(f"{STATE}.viewed") == [[0, 1], [7, 8]]
        assert tab.complaints() == []
        tab.close()


def test_without_the_study_a_page_opens_at_the_first_stored_picture(browser, root, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    with server(root, studies=tmp_path / "elsewhere") as address:
        tab = browser.open(f"{address}/read/s1", 1400, 950)
        tab.wait_for(READY)
        tab.wait_for("enteron.player.frames.get(enteron.player.position)?.bitmap")
        first = min(int(path.stem[-6:]) for path in (root / "reading" / "pictures").glob("*.jpg"))
        assert tab.run(SHOWN) == first
        assert "only the stored pictures" in text(tab, "source")
        tab.close()


# ---- worklist


def test_the_worklist_is_filtered_and_sorted(browser, tmp_path):
    for study in ("s2", "s10", "s1"):
        write_root(tmp_path / study, study)
    listed = "[...document.querySelectorAll('#rows tr')].map(row => row.dataset.study)"
    with server(tmp_path) as address:
        post(address, "s2", {"kind": "sign"})
        post(address, "s10", {"kind": "confirm", "event": "m6"})
        tab = browser.open(f"{address}/", 1400, 950)
        tab.wait_for("document.querySelector('#rows tr')")
        assert tab.run(listed) == ["s1", "s10", "s2"]  # unread, in progress, signed
        cells = tab.page.locator("#rows tr").nth(1).locator("td").all_inner_texts()
        assert cells[:2] == ["s10", "in progress"]
        assert "ulcer 1" in cells[2]
        assert cells[3] == "1"
        assert cells[5] == "anna"
        assert cells[6].startswith("20")
        tab.page.get_by_role("button", name="Study").click()
        assert tab.run(listed) == ["s1", "s2", "s10"]
        tab.page.get_by_role("button", name="Study").click()
        assert tab.run(listed) == ["s10", "s2", "s1"]
        tab.page.locator("#state").select_option("signed")
        assert tab.run(listed) == ["s2"]
        tab.page.locator("#state").select_option("")
        tab.page.locator("#state").blur()
        tab.key("/")
        tab.page.keyboard.type("s10 ulcer")
        assert tab.run(listed) == ["s10"]
        assert text(tab, "count") == "1 of 3 shown"
        tab.key("Enter")
        tab.page.wait_for_url("**/read/s10")
        tab.close()


# ---- playback


def test_playback_by_keys(browser, read_only):
    with server(read_only) as address:
        tab = open_study_page(browser, address)
        for up in (2, 4, 1):
            tab.key(str(up))
            arrived(tab)
            assert tab.page.locator("#stage canvas").count() == up
        jump(tab, 60)
        assert text(tab, "place").startswith("frame 60")
        tab.key("ArrowRight")
        assert tab.run(SHOWN) == 61
        tab.key("ArrowLeft")
        tab.key("ArrowLeft")
        assert tab.run(SHOWN) == 59
        tab.key("Shift+ArrowRight")
        assert tab.run(SHOWN) == 69
        tab.key("j")
        tab.page.keyboard.type("1:40")  # 200 frames at 2 a second
        tab.key("Enter")
        assert tab.run(SHOWN) == 200
        tab.key("b")
        tab.wait_for(f"{SHOWN} < 198")
        tab.key("Space")
        assert not tab.run("enteron.player.playing")
        # Speed: 1 to 40 a second, above 15 marked as fast.
        for _ in range(15):
            tab.key("ArrowDown")
        assert text(tab, "speed-text") == "1/s"
        speeds = []
        for _ in range(15):
            tab.key("ArrowUp")
            tab.settle()
            shown = tab.page.locator("#fast").is_visible()
            speeds.append((tab.run("enteron.player.speed"), shown))
        assert speeds[-1] == (40, True)
        assert dict(speeds)[15] is False
        assert dict(speeds)[20] is True
        tab.page.locator("#speed").evaluate(
            "e => { e.value = 3; e.dispatchEvent(new Event('input')) }"
        )
        assert tab.run("enteron.player.speed") == 4
        assert tab.complaints() == []
        tab.close()


def test_automatic_speed_is_slower_where_something_is_suspected(browser, read_only):
    with server(read_only) as address:
        tab = open_study_page(browser, address)
        tab.run("enteron.player.speed = 20")
        tab.key("u")
        jump(tab, 185)  # inside of an ulcer
        assert tab.run("enteron.player.rate()") == 4
        tab.settle()
        assert text(tab, "speed-text") == "4/s, slowed"
        slow = tab.run("[...enteron.player.slow.keys()].filter(n => enteron.player.slow[n])")
        away = next(n for n in range(60, 400) if not {n, n + 1} & set(slow))
        jump(tab, away)
        assert tab.run("enteron.player.rate()") == 20
        assert {180, 189, 350} <= set(slow)
        tab.key("u")
        jump(tab, 185)
        assert tab.run("enteron.player.rate()") == 20
        tab.close()


# ---- time bar


def test_the_time_bar_previews_jumps_and_remembers(browser, root):
    with server(root) as address:
        tab = open_study_page(browser, address)
        # All of it is seen without scrolling.
        bottom = tab.run("document.querySelector('.timebar').getBoundingClientRect().bottom")
        assert bottom <= 950
        assert tab.run("document.documentElement.scrollHeight") <= 950
        names = tab.page.locator("#tracks .name").all_inner_texts()
        assert {"region", "looked at", "landmarks", "blood", "ulcer"} <= set(names)
        colours = tab.run(
            "[...document.querySelectorAll('.region-mark')]"
            ".map(mark => getComputedStyle(mark).backgroundColor)"
        )
        assert len(set(colours)) == 5
        lane = tab.page.locator(".transit-row .lane").bounding_box()
        assert lane is not None
        x, y = lane["x"] + lane["width"] * 250.5 / 400, lane["y"] + lane["height"] / 2
        tab.page.mouse.move(x, y)
        tab.wait_for("!document.getElementById('preview').hidden")
        tab.wait_for("document.getElementById('preview-image').naturalWidth > 0")
        assert text(tab, "preview-text").startswith("frame 250 ")
        assert "frame=250" in tab.run("document.getElementById('preview-image').src")
        before = tab.run(SHOWN)
        tab.page.mouse.click(x, y)
        tab.wait_for(f"{SHOWN} === 250")
        assert before != 250
        assert text(tab, "readout").startswith("frame 250")
        # Also in regions that follow a landmark that was moved.
        jump(tab, 310)
        tab.key("Shift+C")
        tab.wait_for(f"{STATE}.landmarks['first caecal image'].status === 'moved'")
        tab.page.mouse.click(x, y)
        tab.wait_for(f"{SHOWN} === 250")
        tab.key("z")
        tab.wait_for(f"{STATE}.landmarks['first caecal image'].status === 'proposed'")
        tab.page.mouse.move(5, 5)
        tab.wait_for("document.getElementById('preview').hidden")
        # A fifth of the small bowel (frames 120 to 320) is played, and counts as viewed.
        jump(tab, 120)
        tab.run("enteron.player.speed = 40")
        tab.key("4")
        tab.key("Space")
        tab.wait_for(f"{SHOWN} >= 160")
        tab.key("Space")
        tab.run("enteron.activity.sendViewed()")
        tab.wait_for("enteron.review.answer.summary.measures.small_bowel_viewed >= 0.2")
        tab.settle()
        shown = text(tab, "viewed-share")
        assert shown.endswith("% of the small bowel viewed")
        assert int(shown.split()[0]) >= 20
        marks = tab.page.locator(".viewed-row .viewed").count()
        tab.page.reload()
        tab.wait_for(READY)
        assert text(tab, "viewed-share") == shown
        assert tab.page.locator(".viewed-row .viewed").count() == marks
        assert tab.complaints() == []
        tab.close()


# ---- landmarks


def test_the_caecum_is_reached_with_its_photo_or_not(browser, root):
    with server(root) as address:
        tab = open_study_page(browser, address)
        tab.key("l")
        assert text(tab, "completeness") == "caecum reached (proposed)"
        photo = tab.page.locator("#landmarks-list img[alt='first caecal image']")
        assert "frame=320" in (photo.get_attribute("src") or "")
        photo.scroll_into_view_if_needed()
        tab.wait_for("document.querySelector(\"img[alt='first caecal image']\").naturalWidth > 0")
        tab.key("c")
        arrived(tab)
        assert tab.run(SHOWN) == 320
        tab.key("Shift+C")
        tab.wait_for(f"{STATE}.landmarks['first caecal image'].status === 'confirmed'")
        assert text(tab, "completeness") == "caecum reached"
        tab.page.locator("#landmarks-list li").nth(2).get_by_text("Not reached").click()
        tab.wait_for(f"{STATE}.landmarks['first caecal image'].status === 'absent'")
        assert "not reached" in text(tab, "completeness")
        assert "unknown" in text(tab, "bowel-transit") or "not" in text(tab, "bowel-transit")
        tab.key("z")
        tab.wait_for(f"{STATE}.landmarks['first caecal image'].status === 'confirmed'")
        tab.key("Control+Enter")
        tab.wait_for("document.getElementById('sign').open")
        tab.key("Enter")
        tab.page.wait_for_url("**/report/**")
        tab.wait_for("!document.getElementById('paper').hidden")
        photo = tab.page.locator("#paper img[alt='first caecal image']")
        assert "frame=320" in (photo.get_attribute("src") or "")
        assert tab.page.locator("#exports a").count() == 6
        assert tab.page.locator("#exports").is_visible()
        tab.page.emulate_media(media="print")
        assert not tab.page.locator("#exports").is_visible()
        assert photo.is_visible()
        tab.close()


# ---- suspicious frames


def test_suspicious_frames_are_folded_and_show_their_neighbours(browser, read_only):
    with server(read_only) as address:
        tab = open_study_page(browser, address)
        tab.key("s")
        cards = tab.run("enteron.suspects.shown")
        events = [card["event"] for card in cards if card["event"] is not None]
        assert len(events) == len(set(events))  # one card an event
        listed = json.loads((read_only / "reading" / "suspicious.json").read_text())["frames"]
        folded = sum(card["folded"] for card in tab.run("enteron.suspects.all"))
        assert len(tab.run("enteron.suspects.all")) + folded >= len(listed)
        with_more = next(n for n, card in enumerate(cards) if card["folded"])
        card = tab.page.locator("#suspects-list li").nth(with_more)
        assert f"+{cards[with_more]['folded']}" in card.inner_text()
        card.scroll_into_view_if_needed()
        card.hover()
        frame = cards[with_more]["frame"]
        assert f"frame {frame}" in text(tab, "neighbours-title")
        neighbours = tab.page.locator("#neighbours-list img")
        assert [neighbours.nth(n).get_attribute("alt") for n in range(neighbours.count())] == [
            f"frame {frame + by}" for by in (-3, -2, -1, 1, 2, 3)
        ]
        box = neighbours.first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 950  # seen without scrolling
        tab.key("Enter")
        assert tab.run("document.getElementById('suspects').hidden")
        assert tab.complaints() == []
        tab.close()


# ---- review


def test_trim_comment_grade_and_the_record_in_words(browser, root):
    with server(root) as address:
        tab = open_study_page(browser, address)
        event = f"{STATE}.events.m8"  # an ulcer, frames 180 to 189
        for _ in range(3):
            tab.key("n")
        assert tab.run("enteron.findings.selected") == "m8"
        jump(tab, 183)
        tab.key("[")
        tab.wait_for(f"{event}.start === 183")
        jump(tab, 186)
        tab.key("]")
        tab.wait_for(f"{event}.stop === 187")
        tab.key("q")
        tab.wait_for(f"{event}.saurin === 'P0'")
        tab.key("/")
        tab.page.locator("#ask-text").fill("Is this a fold?")
        tab.key("Control+Enter")
        tab.wait_for(f"{STATE}.comments.length === 1")
        tab.key("z")
        tab.wait_for(f"{event}.saurin === null")
        tab.key("Control+y")
        tab.wait_for(f"{event}.saurin === 'P0'")
        tab.key("h")
        tab.wait_for("document.querySelectorAll('#record-list li').length > 4")
        record = tab.page.locator("#record-list").inner_text()
        for sentence in (
            "anna opened the review",
            "anna trimmed event m8 (ulcer, frame 183)",
            "anna graded event m8 P0 (ulcer, frame 183)",
            "anna undid a decision",
            "anna redid a decision",
        ):
            assert sentence in record, sentence
        assert "Is this a fold?" in text(tab, "comments-list")
        assert "Somebody else" not in tab.run("document.body.textContent")
        # Every key is in the help.
        tab.key("?")
        keys = text(tab, "help-list")
        for what in ("play or pause", "it begins here", "undo", "sign the report", "zoom in"):
            assert what in keys, what
        tab.close()


# ---- scores


def test_scores_are_entered_and_proposals_marked(browser, tmp_path):
    root = write_root(tmp_path, pictures=True, seconds=10)  # KODA rates a frame every five minutes
    with server(root) as address:
        tab = open_study_page(browser, address)
        for landmark in ("g", "d", "c"):
            tab.key(landmark)
            arrived(tab)
            number = tab.run(f"{STATE}.number")
            tab.key(f"Shift+{landmark.upper()}")
            tab.wait_for(f"{STATE}.number > {number}")
        tab.key("Home")
        for _ in range(3):
            tab.key("n")
        tab.key("a")
        tab.wait_for(f"{STATE}.events.m8.decision === 'confirmed'")
        tab.key("o")
        assert "proposed: 1 confirmed" in text(tab, "lewis-rows")
        for name, value in (("cecdai", "#cecdai-value"), ("koda", "#koda-value")):
            form = tab.page.locator(f"#{name}")
            selects = form.locator("select")
            assert selects.count() >= 6
            for index in range(selects.count()):
                selects.nth(index).select_option(index=1)
            form.get_by_role("button", name="Record").click()
            tab.wait_for(f"{STATE}.{name} !== null")
            assert any(sign.isdigit() for sign in tab.page.locator(value).inner_text())
        assert tab.complaints() == []
        tab.close()


# ---- report


def test_the_report_has_headings_of_the_terminology_and_versions(browser, root):
    with server(root) as address:
        tab = open_study_page(browser, address)
        for key in ("n", "a", "n", "a", "n", "a"):
            number = tab.run(f"{STATE}.number")
            tab.key(key)
            if key == "a":
                tab.wait_for(f"{STATE}.number > {number}")
        for _ in range(2):
            tab.key("Control+Enter")
            tab.wait_for("document.getElementById('sign').open")
            tab.key("Enter")
            tab.page.wait_for_url("**/report/**")
            tab.wait_for("!document.getElementById('paper').hidden")
            if tab.run("document.querySelectorAll('#version option').length") == 2:
                break
            headings = [part.lower() for part in tab.page.locator("#paper h3").all_inner_texts()]
            assert headings == ["contents", "flat", "excavated"]  # blood, angiectasia, ulcer
            tab.page.locator("#to-reader").click()
            tab.wait_for(READY)
            tab.key("n")
            tab.key("x")
            tab.wait_for(f"{STATE}.status !== 'signed'")
        # The second version has one finding less; the first one stays as it was.
        assert tab.page.locator("#paper [data-event]").count() == 2
        assert tab.page.locator("#exports-box").is_visible()
        tab.page.locator("#version").select_option("1")
        tab.page.wait_for_url("**version=1")
        tab.wait_for("!document.getElementById('paper').hidden")
        assert tab.page.locator("#paper [data-event]").count() == 3
        assert "Version 2 has replaced this one" in text(tab, "superseded")
        assert not tab.page.locator("#exports-box").is_visible()
        tab.close()
