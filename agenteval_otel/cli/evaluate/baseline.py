"""``--baseline``: the results of the run beside those of an earlier one."""

from __future__ import annotations

import os

from agenteval_otel.cli.evaluate.dataset import DatasetRow
from agenteval_otel.cli.evaluate.reports import ReportWriter
from agenteval_otel.errors import EvaluationError
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.offline.comparison import (
    Answer,
    ComparedSource,
    Comparison,
    answer_of_result,
    compare,
)


class EarlierRun(ReportWriter):
    """Reads the earlier results at once, and keeps the scores of this run.

    Raises:
        ConfigurationError: They cannot be read.
    """

    def __init__(self, text: str) -> None:
        source = ComparedSource(text)
        self.path = os.path.realpath(source.location)
        self._name = source.name
        self._before = list(source.answers())
        self._after: list[Answer] = []
        self._error: EvaluationError | None = None

    def add(self, row: DatasetRow, aggregated: AggregatedEvaluationResult) -> None:
        self._after.append(answer_of_result(aggregated, row.place))

    def comparison(self) -> Comparison | None:
        """Return the comparison, or None if it fails.

        `check` raises the error after the reports are written.
        """
        try:
            return compare(self._before, self._after, names=(self._name, "this run"))
        except EvaluationError as error:
            self._error = error
            return None

    def check(self) -> None:
        """Raise `EvaluationError` if there was no comparison."""
        if self._error is not None:
            raise self._error
