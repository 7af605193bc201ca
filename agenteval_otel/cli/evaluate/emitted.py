"""``--telemetry``: the results of a run, emitted as those of a test suite and its cases."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import PurePath
from types import TracebackType
from typing import Final, Self

from agenteval_otel.capture.redaction.outgoing import Redaction
from agenteval_otel.cli.evaluate.dataset import DatasetRow
from agenteval_otel.cli.evaluate.reports import ReportWriter
from agenteval_otel.cli.evaluate.totals import Summary
from agenteval_otel.engine.response import outgoing_words
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.models.value import copy_with
from agenteval_otel.offline.reports.figures import count_of
from agenteval_otel.offline.run import ANSWER
from agenteval_otel.runtime.masking import printable
from agenteval_otel.semconv import TEST_CASE, TEST_CASE_STATUS, TEST_SUITE, CaseStatus, SuiteStatus
from agenteval_otel.storage.otlp import OtlpStorageProvider
from agenteval_otel.telemetry.emitter import Emitter, score_attributes
from agenteval_otel.telemetry.spans import SuiteSpan

OPTION: Final = "--telemetry"
_SERVICE_NAME: Final = "agenteval-evaluate"
_CHUNK: Final = 256
_MOST_WAITING: Final = 8_192  # results that the receiver has not taken yet
_FLUSH_S: Final = 10.0
_CLOSE_S: Final = 2.0
_SHOWN_NAMES: Final = 3


def name_of_suite(sources: list[str]) -> str:
    """Return the suite's name by its datasets: the names of the first files without endings."""
    names = [PurePath(source).stem for source in sources[:_SHOWN_NAMES]]
    others = len(sources) - len(names)
    return ", ".join(names) + (f" and {others} more" if others else "")


def emitter_of(telemetry: OtlpStorageProvider) -> Emitter:
    """Return the emitter of a run.

    Raises:
        ConfigurationError: No endpoint is known.
    """
    resource = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if not any(pair.strip().startswith("service.name=") for pair in resource.split(",")):
        os.environ.setdefault("OTEL_SERVICE_NAME", _SERVICE_NAME)
    emitter = telemetry.offline_emitter(telemetry.placement)
    if emitter is None:
        raise ConfigurationError(
            "no endpoint is known: set OTEL_EXPORTER_OTLP_ENDPOINT, or telemetry.endpoint in the settings",
            path=OPTION,
        )
    return emitter


class _Delivery(threading.Thread):
    """Has the receiver take what was emitted, on a thread of its own.

    `is_complete` is None while that goes on.
    """

    def __init__(self, emitter: Emitter, emitted: int) -> None:
        super().__init__(name="agenteval-suite", daemon=True)
        self.emitted = emitted
        self.is_complete: bool | None = None
        self._providers = emitter.providers
        self.start()

    def run(self) -> None:
        self.is_complete = self._providers.flush(_FLUSH_S) and not self._providers.lost


class EmittedSuite(ReportWriter):
    """Emits a span for the suite, and below it the run span and the events of each input.

    Emission never waits for the receiver: threads of its own ask it. If the receiver does not take
    the results, the emission ends and the run goes on.
    """

    def __init__(self, name: str, emitter: Emitter, redaction: Redaction) -> None:
        super().__init__(sys.stderr)
        self._name = name
        self._emitter = emitter
        self._redaction = redaction
        self._span: SuiteSpan | None = None
        self._status: SuiteStatus = "aborted"
        self._delivery: _Delivery | None = None
        self._is_away = False
        self._emitted = 0
        self._delivered = 0
        self._left_out = 0

    def __enter__(self) -> Self:
        tracer = self._emitter.tracer()
        if tracer is not None:
            self._span = SuiteSpan(tracer, self._name)
        return self

    def add(self, row: DatasetRow, aggregated: AggregatedEvaluationResult) -> None:
        """Emit the results of one input, unless the receiver is away."""
        self._look()
        if self._is_away or self._emitted - self._delivered >= _MOST_WAITING:
            self._left_out += 1
            return
        shown = self._outgoing(aggregated)
        about = {TEST_SUITE: self._name, TEST_CASE: row.place}
        status = _status_of(aggregated)
        if status is not None:
            about[TEST_CASE_STATUS] = status
        suite = None if self._span is None else self._span.context
        scores = score_attributes(shown.results)
        self._emitter.emit(shown, evaluated=suite, scores=scores, about=about)
        self._emitted += 1
        if self._delivery is None and self._emitted - self._delivered >= _CHUNK:
            self._delivery = _Delivery(self._emitter, self._emitted)

    def finish(self, summary: Summary) -> None:
        """Note how the run ended."""
        totals = summary.totals
        is_failure = summary.missed or totals.run_errors[ANSWER] or not totals.scored
        self._status = "failure" if is_failure else "success"

    def __exit__(
        self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None
    ) -> None:
        if self._span is not None:
            self._span.end(self._status)
        self._await_delivery()
        if not self._is_away:
            self._delivery = _Delivery(self._emitter, self._emitted)
            self._await_delivery()
        close = threading.Thread(target=self._emitter.close, daemon=True)
        close.start()
        close.join(_CLOSE_S)
        undelivered = self._emitted - self._delivered + self._left_out
        if undelivered:
            results = f"the results of {count_of(undelivered, 'input')}"
            print(printable(f"not delivered as telemetry: {results}"), file=self.file)

    def _await_delivery(self) -> None:
        if self._delivery is not None:
            self._delivery.join(_FLUSH_S)
            self._is_away = self._delivery.is_alive()
            self._look()

    def _look(self) -> None:
        """Take the outcome of a delivery that has ended."""
        delivery = self._delivery
        if delivery is None or delivery.is_alive():
            return
        self._delivery = None
        if delivery.is_complete:
            self._delivered = delivery.emitted
        else:
            self._is_away = True

    def _outgoing(self, aggregated: AggregatedEvaluationResult) -> AggregatedEvaluationResult:
        """Return the result as it may leave the process: redacted, with closed words alone."""
        if self._emitter.content == "no_content":
            aggregated = copy_with(aggregated, {"input_snapshot": None})
        redacted = self._redaction.result(aggregated)
        results = tuple(outgoing_words(result, self._redaction) for result in redacted.results)
        return copy_with(redacted, {"results": results})


def _status_of(aggregated: AggregatedEvaluationResult) -> CaseStatus | None:
    """Return whether the case passes, in the word of the attribute.

    The result is None if no result fails and not everything could be judged, or nothing passes.
    """
    judged = [result for result in aggregated.results if not result.shadow]
    if any(result.passed is False for result in judged):
        return "fail"
    if aggregated.run_errors or any(result.status == "failed" for result in judged):
        return None
    return "pass" if any(result.passed for result in judged) else None
