from pathlib import Path

import cv2
import pytest

from enteron.labels import COLUMN, LABELS, REGIONS
from enteron.phantom.sheet import example_labels, save_sheet


@pytest.mark.parametrize("label", LABELS)
def test_an_example_shows_its_label_in_one_region(label: str) -> None:
    rows = example_labels(label, 1)
    assert rows[20, COLUMN[label]]
    assert (rows[:, : len(REGIONS)].sum(axis=1) == 1).all()


@pytest.mark.slow
def test_the_sheet_is_a_picture(tmp_path: Path) -> None:
    save_sheet(tmp_path / "sheet.png")
    page = cv2.imread(str(tmp_path / "sheet.png"))
    assert page is not None
    assert page.shape[0] > 2000
    assert page.std() > 30
