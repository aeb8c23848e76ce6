"""The colour of every label on light and on dark paper, legible on both."""

from typing import Final

from enteron.labels import COLOURS, LABELS

LIGHT_PAPER: Final = "#ffffff"
DARK_PAPER: Final = "#151c21"
ENOUGH: Final = 3.0  # WCAG 2.2, 1.4.11: contrast of graphics that must be told apart


def luminance(colour: str) -> float:
    """Relative luminance of '#rrggbb' as WCAG defines it."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def legible(colour: str, paper: str) -> str:
    """The nearest mixture of a colour with black or white that stands out from the paper."""
    toward = 0 if luminance(paper) > 0.5 else 255
    for percent in range(0, 101, 4):
        mixed = _mixed(colour, toward, percent / 100)
        if contrast(mixed, paper) >= ENOUGH:
            return mixed
    return _mixed(colour, toward, 1.0)


def _mixed(colour: str, toward: int, share: float) -> str:
    channels = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(c + (toward - c) * share):02x}" for c in channels)


def stylesheet() -> str:
    """Per label a class `l-COLUMN` that sets --fill (as everywhere) and --line (legible)."""
    light, dark = [], []
    for column, label in enumerate(LABELS):
        fill = COLOURS[label]
        light.append(f".l-{column}{{--fill:{fill};--line:{legible(fill, LIGHT_PAPER)}}}")
        dark.append(f".l-{column}{{--line:{legible(fill, DARK_PAPER)}}}")
    # Scoped by nesting, so that printing, which is always light, leaves the dark block out.
    dark_rules = "".join(f':root[data-theme="dark"] {rule}' for rule in dark)
    auto_rules = "".join(f":root:not([data-theme]) {rule}" for rule in dark)
    return (
        "".join(light)
        + f"@media screen{{{dark_rules}}}"
        + f"@media screen and (prefers-color-scheme:dark){{{auto_rules}}}"
    )
