from pathlib import Path

import cv2
import numpy as np
import pytest

from enteron.labels import COLUMN, LABELS, REGIONS
from enteron.phantom.dataset import contact_sheet, example_labels, save_sheet


@pytest.mark.parametrize("label", LABELS)
def test_an_example_shows_its_label_in_one_region(label: str) -> None:
    rows = example_labels(label, 1)
    assert rows[20, COLUMN[label]]
    assert (rows[:, : len(REGIONS)].sum(axis=1) == 1).all()


def test_the_sheet_has_a_row_per_label_and_a_strip() -> None:
    page = contact_sheet(1, ("colon", "polyp"), ("olympus",))
    assert page.dtype == np.uint8
    assert page.shape[0] > 2 * 168
    assert page[26 : 26 + 168, 150:].std() > 30


@pytest.mark.slow
def test_the_sheet_is_a_picture(tmp_path: Path) -> None:
    save_sheet(tmp_path / "sheet.png")
    page = cv2.imread(str(tmp_path / "sheet.png"))
    assert page is not None
    assert page.shape[0] > 2000
