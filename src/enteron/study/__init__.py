"""Studies: a folder of frames or a video, behind one interface."""

from enteron.study.opening import open_study
from enteron.study.source import Frame, Study

__all__ = ["Frame", "Study", "open_study"]
