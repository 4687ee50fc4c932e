"""A report on runs: one page that works offline, and the same as Markdown and in a terminal."""

from headstart.report.page.contest import comparison_report
from headstart.report.page.document import Document
from headstart.report.page.live import Watch
from headstart.report.page.making import Report, make_report

__all__ = ["Document", "Report", "Watch", "comparison_report", "make_report"]
