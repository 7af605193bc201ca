"""The emitter: finished results in; events, metrics, result spans and the run span out.

It uses the OpenTelemetry API alone. What is emitted, name by name, is in `docs/telemetry.md`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, StatusCode

from agenteval_otel.capture.text import cap, sanitise
from agenteval_otel.models import EvaluationResult, SpanReference
from agenteval_otel.models.judge_calls import OBSERVER
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log
from agenteval_otel.semconv import EVENT_RESULT, EXPLANATION
from agenteval_otel.telemetry.accounting import Accounting
from agenteval_otel.telemetry.metrics import Instruments, JudgeTotals, JudgeWatch, ResultTotals
from agenteval_otel.telemetry.providers import Providers
from agenteval_otel.telemetry.spans import (
    EventLog,
    Placement,
    context_of_span,
    event_attributes,
    event_body,
    open_run_span,
    response_attributes,
    run_attributes,
    span_context_of,
)

ContentCapture = Literal["no_content", "span_only", "event_only", "span_and_event"]
Detail = Literal["auto", "result", "response", "none"]
Signal = Literal["traces", "events", "metrics"]

_CAPTURE_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CONTENT_WORDS: Final[Mapping[str, ContentCapture]] = {
    "no_content": "no_content", "false": "no_content", "": "no_content", "span_only": "span_only",
    "event_only": "event_only", "span_and_event": "span_and_event", "true": "span_and_event",
}  # fmt: skip


def content_capture(setting: ContentCapture | None) -> ContentCapture:
    """The content setting in force: the explicit one, else OpenTelemetry's variable, else none."""
    if setting is not None:
        return setting
    return _CONTENT_WORDS.get(os.environ.get(_CAPTURE_VARIABLE, "").strip().lower(), "no_content")


Response = Any
"""What is emitted of one evaluated response: an `AggregatedEvaluationResult`, or an object with its attributes."""


class Emitter:
    """Emits results with the providers that are there when one comes. Its settings are `OtlpStorageProvider`'s.

    Thread: only `tracer_now` is for the caller's; all else is for the background thread.
    """

    def __init__(
        self, providers: Providers, *, detail: Detail = "auto", placement: Placement = "child",
        signals: frozenset[Signal] = frozenset({"traces", "events", "metrics"}), content: ContentCapture = "no_content",
    ) -> None:  # fmt: skip
        self.providers, self.placement, self.content = providers, placement, content
        self._detail = detail
        self.wants_spans = "traces" in signals and detail != "none"
        self._wants_events, self._wants_metrics = "events" in signals, "metrics" in signals
        self._span_content = content in ("span_only", "span_and_event")
        self._event_content = content in ("event_only", "span_and_event")
        self.totals = ResultTotals()
        self.judge_totals = JudgeTotals(self.totals.bounded)
        self._accounting: Accounting | None = None
        self._gauges: Callable[[], Mapping[str, float]] = dict
        self._failure: Exception | None = None
        self._instruments: Instruments | None = None
        reset_in_child(self._reset)

    def __repr__(self) -> str:
        return f"<Emitter {self.providers!r}>"

    def _reset(self) -> None:
        self._instruments = None
        self.totals.reset()  # in place: observable instruments hold them
        self.judge_totals.reset()

    def observe(
        self, accounting: Accounting, queue: Callable[[], Mapping[str, float]], load: Callable[[], Mapping[str, float]],
        judges: Iterable[Any] = (),
    ) -> None:  # fmt: skip
        """Set, at start, the sources of outcomes, queue, load and judge metrics; imports what exporters will need."""
        self._accounting, self._gauges = accounting, lambda: {**queue(), **load()}
        self.judge_totals.know(judges)
        self.providers.on_lost = lambda signal, reason, count: accounting.fail(
            "span_left_out" if reason == "host_queue_full" else f"export:{signal}", count
        )
        self.providers.prepare()

    def prepare(self) -> None:
        """Create the instruments: metrics must also show that nothing was evaluated."""
        if self._wants_metrics and self._instruments is None and (meter := self.providers.meter()) is not None:
            self._instruments = Instruments(
                meter, self.totals, self.judge_totals, self._accounting, gauges=lambda: self._gauges(),
                lost=self.providers.lost, reach=self.providers.reach,
            )  # fmt: skip

    def tracer(self) -> trace.Tracer | None:
        """The tracer of our spans; None when no span is wanted or no provider is there."""
        return self.providers.tracer() if self.wants_spans else None

    def tracer_now(self) -> trace.Tracer | None:
        """`tracer`, where it is there already or costs nothing: for the caller's thread."""
        return self.providers.tracer_now() if self.wants_spans else None

    def open_run_span(self, agent: str, evaluated: SpanContext | None, started_ns: int) -> Span | None:
        """Start the run span before evaluators run that make spans of their own; None where no span is to be seen."""
        tracer = self.tracer()
        if tracer is None:
            return None
        return open_run_span(tracer, agent, evaluated, self.placement, started_ns=started_ns)

    def watch_judges(self, evaluated: SpanContext | None) -> None:
        """Count what the running task asks judges, with exemplars of the evaluated span."""
        if self._wants_metrics:
            OBSERVER.set(JudgeWatch(self.judge_totals, self._instruments, context_of_span(evaluated)))

    def emit(
        self, response: Response, *, evaluated: SpanContext | None, scores: Mapping[str, Any],
        run_span: Span | None = None, redact: Callable[[str], str] = str, spans: bool = True,
    ) -> None:  # fmt: skip
        """Emit the results of one response; exporters send them later.

        Args:
            response: Its words (labels, reason codes, error types, ids) are redacted already.
            scores: Its results' `score_attributes`.
            run_span: The run span where it was started before; it is ended here.
            redact: What explanations pass, where content is captured.
            spans: False leaves spans out, because the host's span processor is full.

        Raises the first exception of a provider of the host's; what it should have taken counts as lost.
        """
        self._guarded("metrics", self.prepare)
        totals = self.totals
        agent, model = totals.bounded("agent", response.agent), totals.bounded("model", response.model)
        context = context_of_span(evaluated)
        events = self._guarded("logs", self.providers.events) if self._wants_events else None
        common = response_attributes(response)
        shown: list[tuple[EvaluationResult, dict[str, Any]]] = []
        for result in response.results:
            counted_for = totals.add(result, agent, model)
            if self._instruments is not None:
                self._guarded("metrics", self._instruments.record_score, result, agent, counted_for, context)
            if result.skip_reason is not None and not result.error:
                continue  # a skip has neither an event nor a span
            attributes = event_attributes(result, common)
            if events is not None:
                self._guarded("logs", self._emit_event, events, result, attributes, context, redact)
            is_notable = result.calls_model or bool(result.error)
            if spans and (self._detail == "result" or (self._detail == "auto" and is_notable)):
                shown.append((result, attributes))
        if self._instruments is not None:
            self._guarded("metrics", self._instruments.record_run, response, agent, context)
        if self.wants_spans and spans:
            self._guarded("traces", self._write_spans, response, evaluated, run_span, scores, common, shown)
        elif self.wants_spans:
            self.providers.lose("traces", "host_queue_full")
            log.warning("spans_left_out", part="traces", reason="the application's span processor is full")
        # The run span, and the agent span that ended with it, beside the spans and events of results.
        self.providers.backpressure.sent(2 + len(shown) + (len(response.results) if events is not None else 0))
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        totals.last_success = time.time()

    def _guarded(self, signal: str, emit: Callable[..., Any], *arguments: Any) -> Any:
        """Count what a provider of the host's raised at; the other signals go out."""
        try:
            return emit(*arguments)
        except Exception as error:
            self.providers.lose(signal, "provider_raised")
            self._failure = self._failure or error

    def emit_event(
        self, name: str, *, span: SpanReference | None, body: str, attributes: Mapping[str, Any], warn: bool
    ) -> None:
        """Emit an event about several results, in the context of the evaluated span."""
        events = self.providers.events() if self._wants_events else None
        if events is not None:
            events.emit(
                name, context=context_of_span(span_context_of(span)), timestamp_ns=time.time_ns(),
                body=sanitise(cap(body, 256)), attributes=attributes, warn=warn,
            )  # fmt: skip

    def close(self) -> None:
        """Shut our own providers down; blocks for as long as the SDK takes. The next result builds them anew."""
        self._instruments = None
        self.providers.close()

    def _emit_event(
        self, events: EventLog, result: EvaluationResult, attributes: dict[str, Any], context: Context,
        redact: Callable[[str], str],
    ) -> None:  # fmt: skip
        if self._event_content and result.reasoning:
            attributes = {**attributes, EXPLANATION: sanitise(cap(redact(result.reasoning), 4_096))}
        events.emit(
            EVENT_RESULT, context=context, timestamp_ns=result.ended_ns or time.time_ns(), body=event_body(result),
            attributes=attributes, warn=bool(result.error),
        )  # fmt: skip

    def _write_spans(
        self, response: Response, evaluated: SpanContext | None, run_span: Span | None, scores: Mapping[str, Any],
        common: Mapping[str, Any], shown: Sequence[tuple[EvaluationResult, dict[str, Any]]],
    ) -> None:  # fmt: skip
        tracer = self.tracer()
        attributes = run_attributes(response, scores=scores, common=common, with_content=self._span_content)
        if run_span is not None:
            run_span.set_attributes(attributes)
        elif tracer is not None and response.started_ns is not None:
            run_span = open_run_span(
                tracer, response.agent or "", evaluated, self.placement, started_ns=response.started_ns,
                attributes=attributes,
            )  # fmt: skip
        if run_span is None:
            return
        if shown and tracer is not None and run_span.is_recording():
            below = trace.set_span_in_context(run_span, Context())
            for result, of_event in shown:
                if result.started_ns is not None and result.ended_ns is not None:
                    name, began = f"evaluation {result.criterion_name}", result.started_ns
                    span = tracer.start_span(name, context=below, attributes=of_event, start_time=began)
                    if result.error:
                        span.set_status(StatusCode.ERROR)
                    span.end(end_time=result.ended_ns)
        run_span.end(end_time=response.ended_ns)
