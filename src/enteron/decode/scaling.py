"""Constants counted in rows, for studies that are shorter than real ones.

Synthetic studies are real transits drawn in fewer rows. A constant such as the paper's 200 rows of
confirmation means a share of a transit, so it shrinks with the study, for every decoder alike.
"""


def scaled_rows(rows: float, shortening: float) -> int:
    """So many rows of a full-length study, in rows of a shortened one; none stays none."""
    return max(1, round(rows / shortening)) if rows else 0


def scaled_window(rows: int, shortening: float) -> int:
    """The same for a window, which has a middle: an odd number of rows."""
    scaled = scaled_rows(rows, shortening)
    return scaled if scaled % 2 else max(1, scaled - 1)
