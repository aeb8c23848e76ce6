"""The seventeen labels of RARE-VISION: their order, groups, prompts and colours.

The order below is the column order of every matrix in the project and of every model folder.
"""

from typing import Final

REGIONS: Final = ("mouth", "esophagus", "stomach", "small intestine", "colon")
"""Regions in the order in which a capsule passes them; every frame shows one."""

LANDMARKS: Final = ("z-line", "pylorus", "ileocecal valve")
"""Landmarks sit at the border of two regions."""

FINDINGS: Final = (
    "active bleeding",
    "angiectasia",
    "blood",
    "erosion",
    "erythema",
    "hematin",
    "lymphangioectasis",
    "polyp",
    "ulcer",
)
"""What a physician is looking for."""

ANATOMY: Final = REGIONS + LANDMARKS
LABELS: Final = ANATOMY + FINDINGS

COLUMN: Final = {label: column for column, label in enumerate(LABELS)}
"""Column of each label in a (frames, 17) matrix."""

LANDMARK_BETWEEN: Final = {
    "z-line": ("esophagus", "stomach"),
    "pylorus": ("stomach", "small intestine"),
    "ileocecal valve": ("small intestine", "colon"),
}
"""The two regions that a landmark separates."""

COLOURS: Final = {
    # Regions: muted, since they fill whole bars. Landmarks: dark, since they are thin marks.
    "mouth": "#8da0b6",
    "esophagus": "#b9a1c9",
    "stomach": "#e0a58c",
    "small intestine": "#e8cf8a",
    "colon": "#9fbf94",
    "z-line": "#5b4a7a",
    "pylorus": "#7a4a3c",
    "ileocecal valve": "#3f6b4f",
    # Findings: blood and its kin in reds, the others apart from them and from each other.
    "active bleeding": "#e0002b",
    "angiectasia": "#d6338a",
    "blood": "#a31621",
    "erosion": "#e07b00",
    "erythema": "#f2695c",
    "hematin": "#5a2a27",
    "lymphangioectasis": "#2a9d8f",
    "polyp": "#3a6fd8",
    "ulcer": "#8a6d00",
}
"""One colour per label, the same on every page and plot."""


def prompt(label: str) -> str:
    """The sentence from which the text tower starts a label's text feature (paper, section 2.3)."""
    return f"a video capsule endoscopy image showing {label}"
