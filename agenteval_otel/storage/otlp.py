"""OtlpStorageProvider: the only one that emits: events, metrics, result spans and the run span's attributes.

It turns a finished aggregated result into telemetry, on the pool's thread, with the run span as the current span. What
is emitted, word for word, is in `docs/telemetry.md`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Literal

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext
from pydantic import Field, field_validator

from agenteval_otel.capture.text import cap, sanitise
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult, SpanReference
from agenteval_otel.models.judge_calls import OBSERVER
from agenteval_otel.semconv import EVENT_RESULT, EXPLANATION
from agenteval_otel.storage.attributes import event_attributes, event_body, response_attributes, run_attributes
from agenteval_otel.storage.base import EvaluationStorageProvider
from agenteval_otel.telemetry.accounting import Accounting
from agenteval_otel.telemetry.events import EventLog
from agenteval_otel.telemetry.judge_metrics import JudgeInstruments, JudgeTotals, JudgeWatch
from agenteval_otel.telemetry.log import log
from agenteval_otel.telemetry.metrics import Instruments, ResultTotals
from agenteval_otel.telemetry.providers import Providers
from agenteval_otel.telemetry.self_metrics import observe_lost, observe_self
from agenteval_otel.telemetry.spans import Placement, context_of, reference_of, write_result_span
from agenteval_otel.telemetry.target import OtlpTarget, is_endpoint

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

    def observe(
        self,
        accounting: Accounting,
        queue: Callable[[], dict[str, int]],
        own: Callable[[], Mapping[str, float]] | None = None,
        judges: Iterable[Any] = (),
    ) -> None:
        """Tell it, at start, whose outcomes, queue, own cost and judges the metrics show; imports what it will need."""
        self._running.accounting, self._running.queue, self._running.own = accounting, queue, own
        self._running.judged.know(judges)

        def on_lost(signal: str, reason: str, count: int) -> None:
            if reason == "host_queue_full":
                accounting.fail("span_left_out", count)
            else:
                accounting.fail(f"export:{signal}", count)

        self.providers.on_lost = on_lost
        self.providers.prepare()

    def watch_judges(self, evaluated: SpanContext | None) -> None:
        """Have what the running task asks judges counted, as for the evaluated span. Pool thread only."""
        if "metrics" in self.signals:
            running = self._running
            OBSERVER.set(JudgeWatch(running.judged, running.judges, context_of(reference_of(evaluated))))

    def tracer(self) -> trace.Tracer | None:
        """The tracer for run spans; None when no span is wanted or no provider is to be had. Pool thread only."""
        if "metrics" in self.signals:
            # Not only with the first result: where no judge ever answers, the metrics have to say that.
            self._running.begin_again_in_child()
            self._ensure_instruments()
        return self.providers.tracer() if self._wants_spans else None

    def tracer_now(self) -> trace.Tracer | None:
        """`tracer`, where it costs nothing to have it: for the caller's thread."""
        return self.providers.tracer_now() if self._wants_spans else None

    async def has_room(self) -> bool:
        """Whether a run span would not cost the host spans of its own; waits for a moment, and counts a no."""
        if not self._wants_spans:
            return True
        room = await self.providers.room_for_spans(patient=self._running.has_time())
        if not room:
            self.providers.lose("traces", "host_queue_full")
            log.warning("spans_left_out", part="traces", why="the application's own spans fill its span processor")
        return room

    @cached_property
    def _wants_spans(self) -> bool:
        return "traces" in self.signals and self.detail != "none"

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        """Emit the result; exports later, in the background of the SDK's processors."""
        running = self._running
        running.begin_again_in_child()
        agent = running.totals.bounded("agent", aggregated.agent)
        model = running.totals.bounded("model", aggregated.model)
        if "metrics" in self.signals:
            self._ensure_instruments()
        self._emit_results(aggregated, agent, model, context_of(aggregated.span))
        running.totals.last_success = time.time()

    def _emit_results(
        self, aggregated: AggregatedEvaluationResult, agent: str | None, model: str | None, context: Context
    ) -> None:
        totals, instruments = self._running.totals, self._running.instruments
        events = self.providers.events() if "events" in self.signals else None
        run_span = trace.get_current_span()
        # A run span that is not there, or not recorded, says that nobody would see its children.
        recording = self._wants_spans and run_span.is_recording()
        common = response_attributes(aggregated)
        for result in aggregated.results:
            counted_for = totals.add(result, agent, model)
            if instruments is not None:
                instruments.record_score(result, agent, counted_for, context)
            shown = recording and self._has_span(result)
            if result.status == "skipped" or not (shown or events is not None):
                continue  # what was skipped has neither an event nor a span
            attributes = event_attributes(result, common)
            if events is not None:
                self._emit_event(events, result, attributes, context)
            if shown:
                self._write_span(result, attributes)
        if instruments is not None:
            instruments.record_run(aggregated, agent, context)
        if recording:
            run_span.set_attributes(run_attributes(aggregated, with_content=self._content_on("span")))

    def emit_event(
        self, name: str, *, span: SpanReference | None, body: str, attributes: Mapping[str, Any], warn: bool
    ) -> None:
        """Emit an event that is about several results, now, in the context of a span. Pool thread only.

        Args:
            name: The event's.
            span: The evaluated span that it belongs to; none where there was none.
            body: One short line without content.
            attributes: Sanitised.
            warn: Its severity is WARN instead of INFO.
        """
        events = self.providers.events() if "events" in self.signals else None
        if events is not None:
            events.emit(
                name, context=context_of(span), timestamp_ns=time.time_ns(), body=sanitise(cap(body, 256)),
                attributes=attributes, warn=warn,
            )  # fmt: skip

    async def close(self) -> None:
        """Shut the private providers down; blocks its thread, so it is called on one of its own."""
        self._running.instruments = self._running.judges = None
        self.providers.close()

    def _ensure_instruments(self) -> None:
        running = self._running
        if running.instruments is None and (meter := self.providers.meter()) is not None:
            running.instruments = Instruments(meter, running.totals, running.accounting, running.queue_now)
            running.judges = JudgeInstruments(meter, running.judged)
            observe_self(meter, running.own_now)
            observe_lost(meter, lambda: self.providers.lost)

    def _emit_event(
        self, events: EventLog, result: EvaluationResult, attributes: dict[str, Any], context: Context
    ) -> None:
        if result.reasoning and self._content_on("event"):
            attributes = {**attributes, EXPLANATION: sanitise(cap(result.reasoning, 4_096))}
        events.emit(
            EVENT_RESULT, context=context, timestamp_ns=result.ended_ns or time.time_ns(), body=event_body(result),
            attributes=attributes, warn=result.status == "failed",
        )  # fmt: skip

    def _has_span(self, result: EvaluationResult) -> bool:
        """Whether the detail asks for a span of this result."""
        return self.detail == "result" or (
            self.detail == "auto" and (result.calls_model or result.status == "failed")
        )  # fmt: skip

    def _write_span(self, result: EvaluationResult, attributes: dict[str, Any]) -> None:
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
        self.judged = JudgeTotals(self.totals.bounded)
        self.judges: JudgeInstruments | None = None
        self.accounting: Accounting | None = None
        self.queue: Callable[[], dict[str, int]] | None = None
        self.own: Callable[[], Mapping[str, float]] | None = None
        self._pid = os.getpid()

    def queue_now(self) -> dict[str, int]:
        """The gauges of the present dispatcher: a provider that is kept outlives the one that it began with."""
        return self.queue() if self.queue is not None else {"size": 0, "capacity": 0, "bytes": 0}

    def own_now(self) -> Mapping[str, float]:
        """What the present pipeline costs its host, likewise."""
        return self.own() if self.own is not None else {}

    def has_time(self) -> bool:
        """Whether the queue is at most half full; False where its dispatcher cannot say."""
        try:
            queue = self.queue_now()
            return queue["size"] * 2 <= queue["capacity"]
        except Exception:
            return False

    def begin_again_in_child(self) -> None:
        """After a fork: totals from zero (in place, observable instruments hold them) and instruments anew."""
        if self._pid != os.getpid():
            self._pid, self.instruments, self.judges = os.getpid(), None, None
            self.totals.reset()
            self.judged.reset()
