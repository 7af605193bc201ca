"""The emitter: it turns finished results into events, metrics and spans.

It uses the OpenTelemetry API alone. What is emitted, name by name, is in events.md, spans.md and
metrics.md of `docs/reference/`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, get_args

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, StatusCode

from agenteval_otel import semconv as names
from agenteval_otel.capture.text import CAP_CHARS, clean
from agenteval_otel.models import EvaluationResult, SpanReference
from agenteval_otel.models.judge_calls import OBSERVER, Judgement
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.log import log
from agenteval_otel.sampling.key import PROCESS_KEY, SamplingKey
from agenteval_otel.telemetry.accounting import Accounting, Labels
from agenteval_otel.telemetry.metrics import (
    Instruments,
    JudgeCounters,
    JudgeReadings,
    JudgeWatch,
    ObjectiveStates,
    Readings,
    ResultTotals,
    SharedStates,
)
from agenteval_otel.telemetry.providers import Providers
from agenteval_otel.telemetry.spans import (
    EventLog,
    Placement,
    context_of_span,
    marked_context,
    open_run_span,
    span_context_of,
)

ContentCapture = Literal["no_content", "span_only", "event_only", "span_and_event"]
Detail = Literal["auto", "result", "response", "none"]
Signal = Literal["traces", "events", "metrics"]

_CAPTURE_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CONTENT_WORDS: Final[dict[str, ContentCapture]] = {word: word for word in get_args(ContentCapture)}


def _content_by_variable() -> ContentCapture:
    word = os.environ.get(_CAPTURE_VARIABLE, "").strip().lower()
    return "span_and_event" if word == "true" else _CONTENT_WORDS.get(word, "no_content")


Response = Any
"""What is emitted of one evaluated response: an `AggregatedEvaluationResult`, or an object with its
attributes.
"""


class ShownResult(NamedTuple):
    """Holds a result that has an event, its own attributes there, and the event's explanation.

    Its event and its span also have the attributes that the results of an answer have in common.
    """

    result: EvaluationResult
    attributes: dict[str, Any]
    explanation: str | None


class Emission(NamedTuple):
    """A response on its way out: what its metrics, events and spans have in common.

    Attributes:
        shown: The results that have an event.
        skipped: The results without a score that have an event of their own.
        on_agent_span: The agent span has taken the results. There is no run span.
    """

    response: Response
    evaluated: SpanContext | None
    scores: Mapping[str, Any]
    run_span: Span | None
    context: Context
    agent: str | None
    model: str | None
    common: Mapping[str, Any]
    dimensions: Labels
    shown: Sequence[ShownResult]
    skipped: Sequence[EvaluationResult] = ()
    on_agent_span: bool = False


class Emitter:
    """Emits results, with `OtlpStorageProvider`'s settings.

    On the background thread, but for `agent_tracer_now`.
    """

    def __init__(
        self,
        providers: Providers,
        *,
        detail: Detail = "auto",
        placement: Placement = "child",
        signals: frozenset[Signal] = frozenset({"traces", "events", "metrics"}),
        content: ContentCapture | None = None,
        no_scores: bool = False,
    ) -> None:
        self.providers = providers
        self._no_scores = no_scores
        self.placement = placement
        self._detail = detail
        content = content or _content_by_variable()
        self.content = content
        self.wants_spans = "traces" in signals and detail != "none"
        self._wants_events = "events" in signals
        self._wants_metrics = "metrics" in signals
        providers.wanted = ["LOGS" if signal == "events" else signal.upper() for signal in signals]
        self._span_content = content in ("span_only", "span_and_event")
        self._event_content = content in ("event_only", "span_and_event")
        self.totals = ResultTotals()
        self.judge_totals = JudgeCounters(self.totals.bounded)
        self._accounting: Accounting | None = None
        self._gauges: Callable[[], Mapping[str, float]] = dict
        self._objectives: Callable[[], ObjectiveStates] = dict
        self._shared: Callable[[], SharedStates] = dict
        self._failure: Exception | None = None
        self._instruments: Instruments | None = None
        self.readings = Readings(
            self.totals,
            self.judge_totals,
            lambda: self._accounting,
            gauges=lambda: self._gauges(),
            objectives=lambda: self._objectives(),
            shared=lambda: self._shared(),
            lost=providers.lost,
            reach=providers.reach,
        )
        reset_in_child(self._reset)

    def __repr__(self) -> str:
        return f"<Emitter {self.providers!r}>"

    def _reset(self) -> None:
        self._instruments = None
        self.totals.reset()  # in place: observable instruments hold them
        self.judge_totals.reset()

    def observe(
        self,
        accounting: Accounting,
        queue: Callable[[], Mapping[str, float]],
        load: Callable[[], Mapping[str, float]],
        judges: Iterable[Any] = (),
        dimensions: Mapping[str, int] | None = None,
    ) -> None:
        """Set, at start, the sources of our own metrics, and import what exporters will need."""
        self.totals.dimensions = dict(dimensions or {})
        self.totals.names = accounting.names
        self._accounting = accounting
        self._gauges = lambda: {**queue(), **load()}
        self.judge_totals.know(judges)

        def lose(signal: str, reason: str, count: int) -> None:
            if reason == "host_queue_full":
                accounting.fail("span_left_out", count)
            else:
                accounting.fail(f"export:{signal}", count)

        self.providers.on_lost = lose
        self.providers.prepare()

    def observe_objectives(
        self, states: Callable[[], ObjectiveStates], shared: Callable[[], SharedStates]
    ) -> None:
        """Set the source of the metrics of objectives, and of the evidence that processes share."""
        self._objectives = states
        self._shared = shared

    def observe_judge_health(self, readings: JudgeReadings) -> None:
        """Set the source of the metrics of judge health."""
        self.judge_totals.health = readings

    def prepare(self) -> None:
        """Create the instruments: metrics must also show that nothing was evaluated."""
        if not self._wants_metrics or self._instruments is not None:
            return
        meter = self.providers.meter()
        if meter is not None:
            self._instruments = Instruments(meter, self.readings, self.totals)

    def tracer(self) -> trace.Tracer | None:
        """Return the tracer of run spans, and of agent spans that are written after their call.

        None if no span is wanted or no provider is there.
        """
        return self.providers.tracer() if self.wants_spans else None

    def agent_tracer_now(self) -> trace.Tracer | None:
        """Return the tracer of agent spans if it is there already or costs nothing.

        For the caller's thread. None as for `tracer`.
        """
        return self.providers.agent_tracer_now() if self.wants_spans else None

    def open_run_span(
        self,
        agent: str,
        evaluated: SpanContext | None,
        started_ns: int,
        turns: Sequence[SpanContext] = (),
        key: SamplingKey = PROCESS_KEY,
    ) -> Span | None:
        """Start the run span, before evaluators make spans of their own.

        Return None if no span is wanted, no provider is there or the evaluated trace is not
        sampled.
        """
        tracer = self.tracer()
        if tracer is None:
            return None
        parent = evaluated if self.placement == "linked" else marked_context(evaluated, key)
        return open_run_span(
            tracer, agent, parent, self.placement, started_ns=started_ns, turns=turns
        )

    def watch_judges(self, evaluated: SpanContext | None) -> None:
        """Count what the running task asks judges, with exemplars of the evaluated span."""
        if self._wants_metrics:
            OBSERVER.set(
                JudgeWatch(self.judge_totals, self._instruments, context_of_span(evaluated))
            )

    def emit(
        self,
        response: Response,
        *,
        evaluated: SpanContext | None,
        scores: Mapping[str, Any],
        run_span: Span | None = None,
        redact: Callable[[str], str] = str,
        spans: bool = True,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        """Send one response that a program made itself, by `send`. Its names are the operator's.

        `about` are attributes of its run span and events besides the response's own.
        """
        if response.agent:
            self.totals.names.agents.know_code(response.agent)
        for result in response.results:
            self.totals.names.criteria.know_code(result.criterion_name)
        emission = self.emission(response, evaluated, scores, run_span, redact, about)
        self.send([emission], spans=spans)

    def emission(
        self,
        response: Response,
        evaluated: SpanContext | None,
        scores: Mapping[str, Any],
        run_span: Span | None = None,
        redact: Callable[[str], str] = str,
        about: Mapping[str, Any] | None = None,
    ) -> Emission:
        """Build the emission of one response, for `send`.

        `scores` are its `score_attributes`. Blocks while `redact` runs.

        Only explanations are redacted here. Everything else is redacted already. `send` ends a
        `run_span` that was started before.
        """
        totals = self.totals
        common = response_attributes(response)
        if about:
            common |= _sanitised(about)
        agent, dimensions = totals.place_of(response.agent, common)
        model = None if response.model is None else totals.names.models.admit(response.model)
        # A skip has no span, and an event only where that is asked for.
        skipped: list[EvaluationResult] = []
        if self._no_scores:
            skipped = [result for result in response.results if result.status == "skipped"]
        shown: list[ShownResult] = []
        for result in response.results:
            if result.skip_reason is None or result.error:
                attributes = event_attributes(result)
                explanation = self._explanation(result, redact)
                shown.append(ShownResult(result, attributes, explanation))
        return Emission(
            response=response,
            evaluated=evaluated,
            scores=scores,
            run_span=run_span,
            context=context_of_span(evaluated),
            agent=agent,
            model=model,
            common=common,
            dimensions=dimensions,
            shown=shown,
            skipped=skipped,
        )

    def of_agent_span(self, emission: Emission) -> Mapping[str, Any] | None:
        """Return the attributes that an open agent span takes in place of a run span.

        Return None if the results need a run span: a model was asked, an evaluator failed, or
        results have spans of their own or belong into another trace.
        """
        if (
            emission.run_span is not None
            or self.placement != "child"
            or self._detail == "result"
            or any(_is_notable(shown.result) for shown in emission.shown)
        ):
            return None
        return self._of_results(emission)

    def send(self, emissions: Sequence[Emission], *, spans: bool = True) -> None:
        """Emit the results of responses, one signal after the other. Exporters send them later.

        Without `spans` no run span is written, because the host's span processor is full. Raises
        the first exception of a provider of the host's. The items that this provider should have
        taken count as lost.
        """
        self._guarded("metrics", self.prepare)
        for emission in emissions:
            self._measure(emission)
        run_spans = [emission for emission in emissions if not emission.on_agent_span]
        # Each counts for the agent span that ended with it, and once more if it gets a run span.
        sent = len(emissions) + len(run_spans)
        if self._wants_events:
            for emission in emissions:
                sent += self._send_events(emission)
        if self.wants_spans and spans:
            for emission in run_spans:
                sent += self._guarded("traces", self._write_spans, emission) or 0
        elif self.wants_spans and run_spans:
            self.providers.lose("traces", "host_queue_full", len(run_spans))
            log.warning(
                "spans_left_out", part="traces", reason="the application's span processor is full"
            )
        self.providers.backpressure.sent(sent)
        failure = self._failure
        self._failure = None
        if failure is not None:
            raise failure
        self.totals.last_success = time.time()

    def _send_events(self, emission: Emission) -> int:
        """Emit the events of one response, and return how many."""
        events = self._guarded("logs", self.providers.events)
        if events is None:
            return 0
        for shown in emission.shown:
            self._guarded("logs", self._emit_event, events, emission, *shown)
        for result in emission.skipped:
            self._guarded("logs", self._emit_no_score, events, emission, result)
        return len(emission.shown) + len(emission.skipped)

    def _guarded(self, signal: str, emit: Callable[..., Any], *arguments: Any) -> Any:
        """Count a host provider's exception. The other signals are still emitted."""
        try:
            return emit(*arguments)
        except Exception as error:
            self.providers.lose(signal, "provider_raised")
            self._failure = self._failure or error

    def emit_event(
        self,
        name: str,
        *,
        span: SpanReference | None,
        body: str,
        attributes: Mapping[str, Any],
        warn: bool,
    ) -> None:
        """Emit an event about several results, in the context of the evaluated span."""
        events = self.providers.events() if self._wants_events else None
        if events is not None:
            context = context_of_span(span_context_of(span))
            now_ns = time.time_ns()
            events.emit(
                name,
                context,
                timestamp_ns=now_ns,
                body=clean(body, 256),
                attributes=attributes,
                warn=warn,
            )

    def close(self) -> None:
        """Shut our own providers down.

        Blocks for as long as the SDK takes. The next result builds them anew.
        """
        self._instruments = None
        self.providers.close()

    def _measure(self, emission: Emission) -> None:
        totals = self.totals
        instruments = self._instruments
        response = emission.response
        totals.add_answer(emission.agent, response.unit_kind)
        series_before = totals.series_count
        unit = response.unit
        for result in response.results:
            score_labels = totals.add(
                result,
                emission.agent,
                emission.model,
                emission.dimensions,
                unit=unit,
            )
            if instruments is not None:
                self._guarded(
                    "metrics", instruments.record_score, result, score_labels, emission.context
                )
        if totals.series_count > series_before:
            # What a counter holds when Prometheus first sees it is in none of its rates.
            self.providers.collect_soon()
        if instruments is not None:
            self._guarded(
                "metrics",
                instruments.record_run,
                response,
                emission.agent,
                emission.context,
                emission.dimensions,
            )

    def _explanation(self, result: EvaluationResult, redact: Callable[[str], str]) -> str | None:
        if not (self._wants_events and self._event_content and result.reasoning):
            return None
        return clean(redact(result.reasoning), 4_096)

    def _emit_event(
        self,
        events: EventLog,
        emission: Emission,
        result: EvaluationResult,
        attributes: dict[str, Any],
        explanation: str | None,
    ) -> None:
        if explanation is not None:
            attributes = {**attributes, names.EXPLANATION: explanation}
        ended_ns = result.ended_ns or time.time_ns()
        events.emit(
            names.EVENT_RESULT,
            emission.context,
            timestamp_ns=ended_ns,
            body=event_body(result),
            attributes=attributes,
            warn=bool(result.error),
            common=emission.common,
        )

    def _emit_no_score(
        self, events: EventLog, emission: Emission, result: EvaluationResult
    ) -> None:
        sentence = f"{result.criterion_name} has no score ({result.reason_code})"
        ended_ns = result.ended_ns or emission.response.ended_ns or time.time_ns()
        events.emit(
            names.EVENT_NO_SCORE,
            emission.context,
            timestamp_ns=ended_ns,
            body=_plain(sentence, 256),
            attributes=event_attributes(result),
            warn=False,
            common=emission.common,
        )

    def _write_spans(self, emission: Emission) -> int:
        """Write the run span, and the spans of the results that are to have one.

        Return the number of these results, 0 without a run span.
        """
        response = emission.response
        evaluated = emission.evaluated
        run_span = emission.run_span
        tracer = self.tracer()
        conversation = getattr(response, "conversation", None)
        attributes = self._of_results(emission)
        if run_span is not None:
            run_span.set_attributes(attributes)
        elif tracer is not None and response.started_ns is not None:
            turns = () if conversation is None else conversation.spans()
            run_span = open_run_span(
                tracer,
                response.agent or "",
                evaluated,
                self.placement,
                started_ns=response.started_ns,
                attributes=attributes,
                turns=turns,
                context=emission.context,
            )
        if run_span is None:
            return 0
        shown = [entry for entry in emission.shown if self._has_span(entry.result)]
        if shown and tracer is not None and run_span.is_recording():
            below = trace.set_span_in_context(run_span, Context())
            for result, own_attributes, _ in shown:
                if result.started_ns is not None and result.ended_ns is not None:
                    span = tracer.start_span(
                        f"evaluation {result.criterion_name}",
                        context=below,
                        attributes={**emission.common, **own_attributes},
                        start_time=result.started_ns,
                    )
                    if result.error:
                        span.set_status(StatusCode.ERROR)
                    span.end(end_time=result.ended_ns)
        run_span.end(end_time=response.ended_ns)
        return len(shown)

    def _of_results(self, emission: Emission) -> dict[str, Any]:
        """Return the attributes of the one span that has the results."""
        return run_attributes(
            emission.response,
            scores=emission.scores,
            common=emission.common,
            with_content=self._span_content,
        )

    def _has_span(self, result: EvaluationResult) -> bool:
        return self._detail == "result" or (self._detail == "auto" and _is_notable(result))


def _is_notable(result: EvaluationResult) -> bool:
    return result.calls_model or bool(result.error)


def response_attributes(response: Any) -> dict[str, Any]:
    """Return the attributes that the events and the span of one response have in common."""
    conversation = getattr(response, "conversation", None)
    is_replayed = getattr(response, "replayed", False)
    return _sanitised(
        {
            names.RESPONSE_ID: response.response_id,
            names.AGENT_NAME: response.agent,
            names.CONVERSATION_ID: response.conversation_id,
            names.REQUEST_MODEL: response.model,
            names.SAMPLING_REASON: response.sampling_reason,
            names.SAMPLING_SCOPE: response.sampling_scope,
            names.SAMPLING_CLUSTERED: response.sampling_clustered or None,
            names.STREAM_END: response.stream_end,
            names.RESPONSE_FORM: getattr(response, "response_form", None),
            names.EVALUATION_INCOMPLETE: getattr(response, "incomplete", None),
            names.CONVERSATION_TURNS: None if conversation is None else len(conversation),
            names.CONVERSATION_END: None if conversation is None else conversation.end,
            names.EVALUATION_REPLAYED: is_replayed or None,
            names.EVALUATION_LATE: names.LATE_REPLAY if is_replayed else response.late,
            names.RESPONSE_ENDED_AT: _moment_of(response.response_ended_ns),
            **response.annotations,
        }
    )


def _moment_of(time_ns: int | None) -> str | None:
    """Return a moment in ISO 8601, in UTC. None for one that is unknown or out of the calendar."""
    if time_ns is None:
        return None
    second, rest_ns = divmod(time_ns, 1_000_000_000)
    try:
        return f"{_second_of(second)}.{rest_ns // 1_000_000:03}Z"
    except (OverflowError, ValueError, OSError):
        return None


@lru_cache(maxsize=16)  # the answers of one second share it: 4 us of the 310 of an answer
def _second_of(second: int) -> str:
    moment = datetime.fromtimestamp(second, UTC).isoformat(timespec="seconds")
    return moment.removesuffix("+00:00")


def event_attributes(result: EvaluationResult) -> dict[str, Any]:
    """Return the attributes of one result beside those of its answer, without content.

    A failure has ``error.type`` and neither score nor label.
    """
    evaluator_id = result.evaluator_id or result.evaluator_type
    signature = _signature(
        result.criterion_name,
        evaluator_id,
        result.evaluator_version,
        result.evaluator_kind,
        result.shadow,
    )
    attributes = {**signature, **_of_judgement(result.judgement)}
    if result.reason_code is not None:
        attributes[names.REASON_CODE] = _plain(result.reason_code)
    if result.threshold is not None:
        attributes[names.THRESHOLD] = result.threshold
    if result.probability is not None:
        attributes[names.SAMPLING_PROBABILITY] = result.probability
    if result.sampling_reason is not None:
        attributes[names.SAMPLING_REASON] = _plain(result.sampling_reason)
    if result.suspected_injection:
        attributes[names.SUSPECTED_INJECTION] = True
    if result.status == "failed":
        attributes[names.ERROR_TYPE] = _plain(result.error_type or "error")
        return attributes
    if (number := _number(result.score)) is not None:
        attributes[names.SCORE_VALUE] = number
    if result.label is not None:
        attributes[names.SCORE_LABEL] = _plain(result.label)
    if result.normalized is not None:
        attributes[names.SCORE_NORMALIZED] = result.normalized
    return attributes


def _of_judgement(judgement: Judgement | None) -> dict[str, Any]:
    if judgement is None:
        return {}
    return _sanitised(
        {
            names.JUDGE_MODEL: judgement.model or None,
            names.JUDGE_RESPONSE_ID: judgement.response_id,
            names.JUDGE_INPUT_TOKENS: judgement.input_tokens,
            names.JUDGE_OUTPUT_TOKENS: judgement.output_tokens,
            names.JUDGE_CACHE_READ_TOKENS: judgement.cache_read_tokens,
            names.JUDGE_CACHE_WRITE_TOKENS: judgement.cache_write_tokens,
            names.JUDGE_COST: judgement.cost_usd,
            names.JUDGE_CACHED: judgement.from_cache or None,
            names.JUDGE_LEFT_OUT: judgement.left_out_chars,
            names.JUDGE_FINGERPRINT: judgement.system_fingerprint,
            names.JUDGE_UNTRUSTED: judgement.untrusted or None,
        }
    )


@lru_cache(maxsize=1024)  # evaluators are configured: the same few come with every response
def _signature(
    criterion: str, evaluator: str, version: str | None, kind: str, shadow: bool
) -> Mapping[str, Any]:
    return _sanitised(
        {
            names.EVALUATION_NAME: criterion,
            names.EVALUATOR_ID: evaluator,
            names.EVALUATOR_VERSION: version,
            names.EVALUATOR_TYPE: kind,
            names.EVALUATION_SHADOW: shadow or None,
        }
    )


def event_body(result: EvaluationResult) -> str:
    """Return one short line that reads well by itself, such as ``tone fail (too_harsh)``.

    It has no content.
    """
    if result.status == "failed":
        return _plain(
            f"evaluation of {result.criterion_name} failed: {result.error_type or 'error'}", 256
        )
    value = result.label if result.label is not None else _number(result.score)
    reason = f" ({result.reason_code})" if result.reason_code else ""
    return _plain(f"{result.criterion_name} {value}{reason}", 256)


def score_attributes(results: Sequence[EvaluationResult]) -> dict[str, Any]:
    """Return score and label of each scored criterion, for the span that has the results."""
    attributes: dict[str, Any] = {}
    for result in results[: names.MAX_CRITERIA_PER_SPAN]:
        if result.status == "scored":
            if (number := _number(result.score)) is not None:
                attributes[names.criterion_score(result.criterion_name)] = number
            if result.label is not None:
                attributes[names.criterion_label(result.criterion_name)] = _plain(result.label)
    return attributes


def run_attributes(
    response: Any, *, scores: Mapping[str, Any], common: Mapping[str, Any], with_content: bool
) -> dict[str, Any]:
    """Return the attributes of the span that has the results.

    Annotations and scores are first and core is last, because the SDK evicts the oldest beyond
    its limit.
    """
    snapshot = response.input_snapshot if with_content else None
    content: dict[str, Any] = {}
    if snapshot:
        content[names.USER_PROMPT] = snapshot.prompt
        content[names.FULL_RESPONSE] = snapshot.response_text
    failing = tuple(
        result.criterion_name
        for result in response.results
        if result.passed is False and not result.shadow
    )
    core = {
        names.SAMPLING_PROBABILITY: response.sampling_probability,
        names.EVALUATION_MODULE: response.module,
        names.HAS_GROUND_TRUTH: response.has_ground_truth,
        names.FAILED_CRITERIA: failing or None,
        names.OVERALL_SCORE: response.overall_score,
    }
    return {
        **response.annotations,
        **scores,
        **_sanitised(content),
        **common,
        **_sanitised(core),
    }


def _number(score: object) -> float | None:
    return float(score) if isinstance(score, int | float) else None


def _sanitised(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _plain(value) if isinstance(value, str) else value
        for name, value in attributes.items()
        if value is not None
    }


def _plain(text: str, limit: int = CAP_CHARS) -> str:
    # Most texts are short ASCII and need not pass the slower checks of `clean`.
    is_plain = type(text) is str and text.isascii() and len(text) <= 256 and "\0" not in text
    return text if is_plain else clean(text, limit)
