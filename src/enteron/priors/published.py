"""Figures of all 80 Galar studies, from the dataset's own description.

They cover more studies than the annotation that priors are fitted to, so presence and back-steps
use them. Durations do not: only their medians and rounded spreads are published.
"""

from typing import Final

from enteron.priors.statistics import PublishedDuration, Share

SOURCE: Final = "the published statistics of all 80 Galar studies"

STUDIES: Final = 80

_SHOWING: Final = {
    "mouth": 65,
    "esophagus": 65,
    "stomach": 75,
    "small intestine": 80,
    "colon": 71,
    "z-line": 26,
    "pylorus": 58,
    "ileocecal valve": 53,
    "active bleeding": 13,
    "angiectasia": 41,
    "blood": 51,
    "erosion": 45,
    "erythema": 30,
    "hematin": 22,
    "lymphangioectasis": 39,
    "polyp": 33,
    "ulcer": 16,
}

PRESENCE: Final = {label: Share(count=count, n=STUDIES) for label, count in _SHOWING.items()}
"""Studies that show each label. Shares are published to two decimals; these are the only whole
numbers of 80 that round to them (stomach: from the published odds of its absence, 0.07)."""

DURATIONS: Final = {
    "mouth": PublishedDuration(n=65, median=45, log_sd=1.6),
    "esophagus": PublishedDuration(n=65, median=50, log_sd=1.6),
    "stomach": PublishedDuration(n=75, median=3090, log_sd=1.3),
    "small intestine": PublishedDuration(n=80, median=39331, log_sd=0.7),
    "colon": PublishedDuration(n=71, median=19671, log_sd=1.5),
}
"""Total time in each region, in original frames."""

BACK_STEP_STUDIES: Final = Share(count=10, n=STUDIES)
BACK_STEPS: Final = 26

LANDMARK_ENDS: Final = {
    "z-line": Share(count=23, n=26),
    "pylorus": Share(count=38, n=56),
    "ileocecal valve": Share(count=33, n=53),
}
"""Studies in which the landmark ends the region before it, of those that show both."""
