"""Events for other programs: a reading as files of annotation tools."""

from enteron.export.label_studio import write_label_studio

__all__ = ["write_label_studio"]
