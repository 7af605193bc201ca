"""OtlpStorageProvider: the only one that emits: events, metrics, result spans and the run span's attributes.

It turns a finished aggregated result into telemetry, on the pool's thread, with the run span as the current span. What
is emitted, word for word, is in `docs/telemetry.md`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Literal

from opentelemetry import trace
from pydantic import Field, field_validator

from agenteval_otel.capture.text import cap, sanitise
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from agenteval_otel.semconv import EVENT_RESULT, EXPLANATION
from agenteval_otel.storage.attributes import event_attributes, event_body, run_attributes
from agenteval_otel.storage.base import EvaluationStorageProvider
from agenteval_otel.telemetry.accounting import Accounting
from agenteval_otel.telemetry.metrics import Instruments, ResultTotals
from agenteval_otel.telemetry.private import OtlpTarget, is_endpoint
from agenteval_otel.telemetry.providers import Providers
from agenteval_otel.telemetry.spans import Placement, context_of, write_result_span

__all__ = ["ContentCapture", "OtlpStorageProvider"]

_CAPTURE_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
ContentCapture = Literal["no_content", "span_only", "event_only", "span_and_event"]
_CONTENT_WORDS: Mapping[str, ContentCapture] = {
    "no_content": "no_content", "false": "no_content", "": "no_content", "span_only": "span_only",
    "event_only": "event_only", "span_and_event": "span_and_event", "true": "span_and_event",
}  # fmt: skip


class OtlpStorageProvider(EvaluationStorageProvider, type="otlp"):
    """Emits results through OpenTelemetry.

    Providers are resolved per signal when the first result comes: the explicit one, else the application's global one,
    else a private one when an endpoint is known (here or in ``OTEL_EXPORTER_OTLP_*``), else none and one warning.

    Attributes:
        endpoint: OTLP endpoint, such as ``http://localhost:4317``.
        protocol: ``grpc`` or ``http/protobuf``; from the environment, else by the port, when left out.
        headers: Sent with everything that is exported, such as an authorization; never shown.
        detail: ``auto`` writes result spans for evaluators that call a model and for failures, ``result`` for all,
            ``response`` none beside the run span, ``none`` no span at all.
        placement: The run span as a ``child`` of the evaluated span, or ``linked`` from a trace of its own.
        signals: Those that are emitted.
        content: Which signals may carry content (prompt, answer, explanations); None follows
            ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT``, whose default is none.
    """

    endpoint: str | None = None
    protocol: Literal["grpc", "http/protobuf"] | None = None
    headers: dict[str, str] = Field(default_factory=dict, repr=False, exclude=True)
    detail: Literal["auto", "result", "response", "none"] = "auto"
    placement: Placement = "child"
    signals: frozenset[Literal["traces", "events", "metrics"]] = frozenset({"traces", "events", "metrics"})
    content: ContentCapture | None = None
    tracer_provider: Any = Field(default=None, exclude=True, repr=False)
    logger_provider: Any = Field(default=None, exclude=True, repr=False)
    meter_provider: Any = Field(default=None, exclude=True, repr=False)

    @field_validator("endpoint")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value and not is_endpoint(value):
            raise ValueError("expected http://HOST:PORT such as http://localhost:4317")
        return value or None  # an empty variable says nothing

    @cached_property
    def providers(self) -> Providers:
        """Where the signals go."""
        return Providers(
            tracer_provider=self.tracer_provider, logger_provider=self.logger_provider,
            meter_provider=self.meter_provider, target=OtlpTarget(self.endpoint, self.protocol, self.headers),
        )  # fmt: skip

    @cached_property
    def content_capture(self) -> ContentCapture:
        """The content setting in force."""
        if self.content is not None:
            return self.content
        return _CONTENT_WORDS.get(os.environ.get(_CAPTURE_VARIABLE, "").strip().lower(), "no_content")

    @cached_property
    def _running(self) -> _Running:
        return _Running()

    def observe(self, accounting: Accounting, queue: Callable[[], dict[str, int]]) -> None:
        """Tell it, at start, whose outcomes and whose queue the metrics show; imports what it will need."""
        self._running.accounting, self._running.queue = accounting, queue
        self.providers.prepare()

    def tracer(self) -> trace.Tracer | None:
        """The tracer for run spans; None when no span is wanted or no provider is to be had."""
        return self.providers.tracer() if self._wants_spans else None

    def tracer_now(self) -> trace.Tracer | None:
        """`tracer`, where it costs nothing to have it: for the caller's thread."""
        return self.providers.tracer_now() if self._wants_spans else None

    @cached_property
    def _wants_spans(self) -> bool:
        return "traces" in self.signals and self.detail != "none"

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        """Emit the result; exports later, in the background of the SDK's processors."""
        context = context_of(aggregated.span)
        running = self._running
        running.begin_again_in_child()
        agent = running.totals.bounded("agent", aggregated.agent)
        model = running.totals.bounded("model", aggregated.model)
        if "metrics" in self.signals:
            self._ensure_instruments()
        for result in aggregated.results:
            running.totals.add(result, agent, model)
            if running.instruments is not None:
                running.instruments.record_score(result, agent, model, context)
            if result.status == "skipped":
                continue  # neither an event nor a span
            attributes = event_attributes(result, aggregated)
            self._emit_event(result, aggregated, attributes, context)
            self._write_span(result, aggregated, attributes)
        if running.instruments is not None:
            running.instruments.record_run(aggregated, agent, context)
        span = trace.get_current_span()
        if self._wants_spans and span.is_recording():
            span.set_attributes(run_attributes(aggregated, with_content=self._content_on("span")))
        running.totals.last_success = time.time()

    async def close(self) -> None:
        """Shut the private providers down; blocks its thread, so it is called on one of its own."""
        self._running.instruments = None
        self.providers.close()

    def _ensure_instruments(self) -> None:
        running = self._running
        if running.instruments is None and (meter := self.providers.meter()) is not None:
            running.instruments = Instruments(meter, running.totals, running.accounting, running.queue_now)

    def _emit_event(
        self, result: EvaluationResult, aggregated: AggregatedEvaluationResult, attributes: dict[str, Any], context: Any
    ) -> None:
        if "events" not in self.signals or (events := self.providers.events()) is None:
            return
        if result.reasoning and self._content_on("event"):
            attributes = {**attributes, EXPLANATION: sanitise(cap(result.reasoning, 4_096))}
        events.emit(
            EVENT_RESULT, context=context, timestamp_ns=result.ended_ns or time.time_ns(), body=event_body(result),
            attributes=attributes, warn=result.status == "failed",
        )  # fmt: skip

    def _write_span(
        self, result: EvaluationResult, aggregated: AggregatedEvaluationResult, attributes: dict[str, Any]
    ) -> None:
        wanted = self.detail == "result" or (
            self.detail == "auto" and (result.calls_model or result.status == "failed")
        )
        # A run span that is not there, or not recorded, says that nobody would see its children.
        if not wanted or not trace.get_current_span().is_recording():
            return
        tracer = self.tracer()
        if tracer is None or result.started_ns is None or result.ended_ns is None:
            return
        write_result_span(
            tracer, f"evaluation {result.criterion_name}", attributes, started_ns=result.started_ns,
            ended_ns=result.ended_ns, failed=result.status == "failed",
        )  # fmt: skip

    def _content_on(self, signal: Literal["span", "event"]) -> bool:
        return self.content_capture in (f"{signal}_only", "span_and_event")


class _Running:
    """What changes while it runs."""

    def __init__(self) -> None:
        self.totals = ResultTotals()
        self.instruments: Instruments | None = None
        self.accounting: Accounting | None = None
        self.queue: Callable[[], dict[str, int]] | None = None
        self._pid = os.getpid()

    def queue_now(self) -> dict[str, int]:
        """The gauges of the present dispatcher: a provider that is kept outlives the one that it began with."""
        return self.queue() if self.queue is not None else {"size": 0, "capacity": 0, "bytes": 0}

    def begin_again_in_child(self) -> None:
        """After a fork: totals from zero (in place, observable instruments hold them) and instruments anew."""
        if self._pid != os.getpid():
            self._pid, self.instruments = os.getpid(), None
            self.totals.reset()
