"""Colours of labels stand out from the paper."""

import pytest

from enteron.labels import COLOURS, LABELS
from enteron.report.page import (
    DARK_PAPER,
    LEAST_CONTRAST,
    LIGHT_PAPER,
    contrast,
    label_styles,
    legible,
    luminance,
)


def test_luminance_and_contrast_as_wcag_gives_them():
    assert (luminance("#000000"), luminance("#ffffff")) == (0, pytest.approx(1))
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)  # WCAG's known example


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("paper", [LIGHT_PAPER, DARK_PAPER])
def test_every_label_is_legible(label, paper):
    assert contrast(legible(COLOURS[label], paper), paper) >= LEAST_CONTRAST


def test_legible_colours_stay_as_they_are():
    assert legible("#a31621", LIGHT_PAPER) == "#a31621"


def test_every_label_has_a_class():
    css = label_styles()
    for column, label in enumerate(LABELS):
        assert f".l-{column}{{--fill:{COLOURS[label]};" in css
