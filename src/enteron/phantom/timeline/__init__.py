"""What every row of a synthetic study shows, drawn from measured statistics."""

from enteron.phantom.timeline.drawing import Timeline, TimelineOptions, draw_timeline, study_seed

__all__ = ["Timeline", "TimelineOptions", "draw_timeline", "study_seed"]
