"""A whole reading in a browser, as a physician does it: from the worklist to the signed report.

The test follows it on small drawn frames; `enteron bench reader_pictures` takes the pictures of the
documentation from it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.browser import Tab

STATE = "enteron.review.state"


@dataclass
class Decided:
    """What was done, to be compared with what exports hold."""

    confirmed: list[str] = field(default_factory=list)  # ids of events
    rejected: list[str] = field(default_factory=list)
    relabelled: dict[str, str] = field(default_factory=dict)  # id: label
    added: dict[str, Any] = field(default_factory=dict)
    caecum: int = 0
    transit: tuple[str, str] = ("", "")  # before and after the caecum was moved
    lewis: int = 0


def nothing(_name: str) -> None:
    """Takes no picture."""


def read_and_sign(
    tab: Tab, *, missed: int, caecum: int, shoot: Callable[[str], None] = nothing
) -> Decided:
    """From the worklist to the signed report; `missed` is a frame that the model did not report."""
    done = Decided(caecum=caecum)
    tab.wait_for("document.querySelector('#rows tr')")
    shoot("worklist")
    tab.key("Enter")
    tab.wait_for("document.querySelector('#reader.is-complete')")
    tab.wait_for("enteron.player.frames.get(enteron.player.position)?.bitmap")
    tab.wait_for("document.getElementById('source').textContent === ''")
    # Suspicious frames, by the keyboard alone.
    tab.key("s")
    tab.wait_for("!document.getElementById('suspects').hidden")
    for key in ("a", "a", "x", "r", "a", "x"):
        decide(tab, key, done)
        if key == "r":
            shoot("suspicious")
    tab.key("Escape")
    # A finding that the model missed.
    jump(tab, missed)
    tab.key("m")
    tab.wait_for("document.getElementById('choose').open")
    shoot("add")
    tab.key("2")  # the second finding of the list
    tab.wait_for(f"Object.values({STATE}.events).some(e => e.origin === 'person')")
    assert tab.run("enteron.player.up") == 1  # the digit belonged to the dialog
    done.added = tab.run(f"Object.values({STATE}.events).find(e => e.origin === 'person')")
    # The first caecal image lies elsewhere; transit times follow.
    tab.key("l")
    transit = "document.getElementById('bowel-transit').textContent"
    before = tab.run(transit)
    for landmark in ("g", "d"):  # confirmed where they were proposed
        tab.key(landmark)
        arrived(tab)
        number = tab.run(f"{STATE}.number")
        tab.key(f"Shift+{landmark.upper()}")
        tab.wait_for(f"{STATE}.number > {number}")
    jump(tab, caecum)
    tab.key("Shift+C")
    tab.wait_for(f"{STATE}.landmarks['first caecal image'].status === 'moved'")
    done.transit = (before, tab.run(transit))
    shoot("landmarks")
    # Lewis: few short ulcers of a small size in the second tertile.
    tab.key("o")
    for name, value in (
        ("ulcers1", "few"),
        ("ulcers-extent1", "short"),
        ("ulcers-size1", "under a quarter"),
    ):
        tab.page.locator(f"select[name='{name}']").select_option(value)
    tab.page.locator("#lewis button").last.scroll_into_view_if_needed()
    tab.page.locator("#lewis button", has_text="Record").press("Enter")
    tab.wait_for(f"{STATE}.lewis !== null")
    done.lewis = tab.run("enteron.review.answer.summary.lewis")
    tab.run("document.querySelector('.side').scrollTo(0, 0)")
    shoot("scores")
    tab.run("document.activeElement.blur()")
    # A few frames at speed, four at once, so that a part of the study counts as viewed.
    tab.key("d")
    tab.key("4")
    tab.key("Space")
    tab.wait_for("enteron.player.stats.shown >= 8")
    tab.key("Space")
    shoot("playing")
    tab.key("1")
    tab.key("w")
    tab.page.locator("#report-indication").fill("Obscure bleeding.")
    tab.page.locator("#report-conclusion").fill("Several findings, see the pictures.")
    tab.key("Tab")
    tab.wait_for(f"{STATE}.report.conclusion")
    shoot("report")
    tab.key("Escape")
    tab.key("Control+Enter")
    tab.wait_for("document.getElementById('sign').open")
    tab.key("Enter")
    tab.page.wait_for_url("**/report/**")
    tab.wait_for("!document.getElementById('paper').hidden")
    tab.wait_for("[...document.images].every(image => image.complete)")
    shoot("signed")
    return done


def decide(tab: Tab, key: str, done: Decided) -> None:
    """Accept, reject or relabel the selected suspect; only those that stand for an event."""
    event = "enteron.suspects.eventOf(enteron.suspects.current)"
    while not tab.run(f"Boolean({event})"):  # a frame that no event was made of
        tab.key("ArrowRight")
    name = tab.run(f"{event}.id")
    number = tab.run(f"{STATE}.number")
    tab.key(key)
    if key == "r":
        tab.wait_for("document.getElementById('choose').open")
        tab.key("1")
    tab.wait_for(f"{STATE}.number > {number}")
    if key == "a":
        done.confirmed.append(name)
    elif key == "x":
        done.rejected.append(name)
    else:
        done.relabelled[name] = tab.run(f"{STATE}.events['{name}'].label")
        tab.key("ArrowRight")


def jump(tab: Tab, frame: int) -> None:
    """Jump to a frame with the keyboard."""
    tab.key("j")
    tab.page.keyboard.type(str(frame))
    tab.key("Enter")
    tab.wait_for(f"enteron.frameAt(enteron.player.position) === {frame}")
    arrived(tab)


def arrived(tab: Tab) -> None:
    """Wait until the picture of the place is there."""
    tab.wait_for("!enteron.player.playing && enteron.player.jumpedAt === 0")
