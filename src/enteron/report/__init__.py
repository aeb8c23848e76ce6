"""The report: one self-contained page from a reading folder."""

from enteron.report.page import write_report

__all__ = ["write_report"]
