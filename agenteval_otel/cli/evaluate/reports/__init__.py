"""Reports: what an evaluation found, in the forms that people and machines read. One file each, `base` the contract."""

from __future__ import annotations

from agenteval_otel.cli.evaluate.reports.base import Report, Summary
from agenteval_otel.cli.evaluate.reports.json_report import JsonReport
from agenteval_otel.cli.evaluate.reports.junit import JUnitReport
from agenteval_otel.cli.evaluate.reports.markdown import MarkdownReport
from agenteval_otel.cli.evaluate.reports.table import TableReport

__all__ = ["KINDS", "Report", "Summary"]

KINDS: dict[str, type[Report]] = {
    "table": TableReport,
    "json": JsonReport,
    "junit": JUnitReport,
    "markdown": MarkdownReport,
}
"""By the word that chooses them on the command line."""
