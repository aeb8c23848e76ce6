"""What each synthetic study will be: its id, device, place on disk, quirks and labels."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from pydantic import Field

from enteron.config import Options
from enteron.galar.table import LabelTable
from enteron.labels import COLUMN, FINDINGS, REGIONS
from enteron.phantom.film import Film
from enteron.phantom.timeline import Timeline, TimelineOptions, draw_timeline, study_seed
from enteron.priors import Priors
from enteron.runs import runs_of
from enteron.types import FrameAxis

TEST_FOLDER = "Testdata_ICPR_2026_RARE_Challenge"
UPDATED_FOLDER = "20251215_Labels_Updated"
SYSTEMS = {"olympus": "Olympus", "pillcam": "PillCam SB3", "navicam": "NaviCam"}
# As in Galar: of PillCam studies every fifth frame is stored, of Olympus studies every one.
STORED_STEP = {"olympus": 1, "pillcam": 5, "navicam": 1}


class PhantomOptions(Options):
    """What to make."""

    frames: int = Field(ge=1)
    """Stored frames of each study."""

    seed: int = Field(default=1, ge=0)
    """Everything follows from it; a study depends on it and on its own number only."""

    device: Literal["olympus", "pillcam", "navicam", "mixed"] = "mixed"
    """`mixed` alternates PillCam and Olympus; NaviCam is for tests on a device never seen."""

    rarity: float = Field(default=1.0, ge=0)
    """1 as rare as in the data, 0 every landmark and finding in every study, above 1 rarer."""

    stalls: float = Field(default=0.5, ge=0, le=1)
    """Share of frames in which the capsule hardly moves."""

    video: bool = False
    """A video file per study instead of a folder of frames."""


@dataclass(frozen=True)
class StudyPlan:
    """One synthetic study before it is drawn; a function of the options and its number."""

    number: int  # from 1
    options: PhantomOptions
    priors: Priors

    @property
    def device(self) -> str:
        if self.options.device != "mixed":
            return self.options.device
        return ("olympus", "pillcam")[self.number % 2]

    @property
    def is_test(self) -> bool:
        """Studies of the device that training never sees are laid out as the test set is."""
        return self.device == "navicam"

    @property
    def id(self) -> str:
        return f"ukdd_navi_{self.number:05d}" if self.is_test else str(self.number)

    @property
    def folder(self) -> str:
        """Where its images go, relative to the root."""
        if self.is_test:
            return f"{TEST_FOLDER}/{self.id}"
        first = (self.number - 1) // 10 * 10 + 1
        name = f"recording_{self.id}" if self.number % 4 == 0 else self.id
        return f"Galar_Frames_{first}_to_{first + 9}/{name}"

    def image_name(self, frame: int) -> str:
        return f"frame_{frame:07d}.png" if self.is_test else f"frame_{frame:06d}.PNG"

    @property
    def is_updated(self) -> bool:
        """Whether the dataset has corrected labels for it: a quarter of the studies."""
        return not self.is_test and self.number % 4 == 3

    @property
    def is_technical(self) -> bool:
        """Whether its label file has technical columns in front, as in six studies of 80."""
        return not self.is_test and self.number % 13 == 2

    @cached_property
    def _seeds(self) -> list[np.random.SeedSequence]:
        return study_seed(self.options.seed, self.number).spawn(3)

    @property
    def _film_seed(self) -> int:
        return int(self._seeds[1].generate_state(1)[0])

    @cached_property
    def timeline(self) -> Timeline:
        """What every row shows, and how far a real transit was shortened for it."""
        options = TimelineOptions(rarity=self.options.rarity)
        return draw_timeline(self.options.frames, self._seeds[0], self.priors, options)

    @cached_property
    def table(self) -> LabelTable:
        """The true labels: what is drawn is exactly this."""
        timeline = self.timeline
        rng = np.random.default_rng(self._seeds[2])
        step = 1 if self.options.video else STORED_STEP[self.device]
        # Real recordings start somewhere; a video counts its frames from 0.
        first = 0 if self.options.video else int(rng.integers(0, 100))
        index = np.arange(first, first + len(timeline.labels), dtype=np.int64)
        return LabelTable(self.id, FrameAxis(step * index), index, timeline.labels, self.is_updated)

    def film(self) -> Film:
        """The study to look at."""
        frames, stalls = self.table.axis.frames, self.options.stalls
        return Film(self.table.values, self.device, self._film_seed, frames, stalls)

    @cached_property
    def slipped_table(self) -> LabelTable:
        """The labels before their correction: a border set late, and a run of a finding missed."""
        values = self.table.values.copy()
        rng = np.random.default_rng([*self._seeds[2].generate_state(2), 1])
        regions = values[:, : len(REGIONS)]
        borders = np.flatnonzero((regions[1:] != regions[:-1]).any(axis=1)) + 1
        if borders.size:
            border = int(rng.choice(borders))
            late = min(int(rng.integers(1, 6)), len(values) - border)
            regions[border : border + late] = regions[border - 1]
        shown = [label for label in FINDINGS if values[:, COLUMN[label]].any()]
        if shown:
            column = COLUMN[shown[int(rng.integers(len(shown)))]]
            runs = runs_of(values[:, column])
            start, stop = runs[int(rng.integers(len(runs)))]
            values[start:stop, column] = False
        return LabelTable(self.id, self.table.axis, self.table.index, values)
