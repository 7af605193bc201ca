"""Spans and events.

Outside any trace the handler gets its own ``invoke_agent`` span, which takes the results if they
are there when it ends. Else the run span, a child of the evaluated span, carries them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import unquote

from opentelemetry import _logs, trace
from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
)
from opentelemetry.trace.span import TraceState

from agenteval_otel import semconv as names
from agenteval_otel.models import SpanReference
from agenteval_otel.models.value import construct
from agenteval_otel.runtime.fork import RANDOM
from agenteval_otel.runtime.version import scope_version
from agenteval_otel.sampling.key import SamplingKey

Placement = Literal["child", "linked"]
_MAX_ENTRIES: Final = 32  # of a trace state
ADDED_AT_END: Final = "agenteval_added_at_end"
"""The attribute of our own provider's spans that holds, by span id, what is exported beside a span's
attributes. The SDK checks each value of `set_attributes` in Python. With 13 attributes that is a
tenth of the CPU time of an answer, and the values are ours.
"""


def own_service_version() -> str | None:
    """Return the version of this process's service, from the application's tracer provider.

    Without a provider with a resource it is from the environment. None if it is unknown.
    """
    resource = getattr(trace.get_tracer_provider(), "resource", None)
    attributes = getattr(resource, "attributes", None)
    if not isinstance(attributes, Mapping):
        attributes = _resource_of(os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    version = attributes.get(names.SERVICE_VERSION)
    return str(version) if version else None


@lru_cache(maxsize=4)
def _resource_of(text: str) -> dict[str, str]:
    pairs = (item.partition("=") for item in text.split(","))
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}


def open_agent_span(
    tracer: trace.Tracer, agent: str, *, started_ns: int, context: Context | None = None
) -> Span:
    """Start the decorator's own ``invoke_agent {agent}`` span.

    It is started at once, or afterwards with its true start.
    """
    name = f"{names.OPERATION_INVOKE_AGENT} {agent}"
    attributes = {names.OPERATION_NAME: names.OPERATION_INVOKE_AGENT, names.AGENT_NAME: agent}
    return tracer.start_span(name, context=context, attributes=attributes, start_time=started_ns)


def add_to_agent_span(
    span: Span, attributes: Mapping[str, Any], results: Mapping[str, Any] | None = None
) -> bool:
    """Set the attributes of the answer, and its results, on the agent's span, which is ended next.

    Return whether the span has taken the results.

    Results are taken all together or not at all. Nothing that the application's code has set is
    replaced, or pushed out as the SDK does beyond its limit. Where the limit cannot be seen,
    because the span is neither ours nor the SDK's, no results are taken.
    """
    if not span.is_recording():  # the handler may have ended it
        return False
    already_set = set(getattr(span, "attributes", None) or ())
    limits = getattr(span, "_limits", None)
    most = None if limits is None else limits.max_span_attributes
    room = sys.maxsize if most is None else max(0, most - len(already_set))
    are_taken = False
    if results is not None and limits is not None:
        added = _without({**attributes, **results}, already_set)
        are_taken = len(added) <= room
    if not are_taken:
        added = _without(attributes, already_set)
        added = dict(islice(added.items(), room))
    added_at_end = getattr(span, ADDED_AT_END, None)
    if added_at_end is None:
        span.set_attributes(added)
    else:
        added_at_end[span.get_span_context().span_id] = added
    return are_taken


def _without(attributes: Mapping[str, Any], left_out: Container[str]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if name not in left_out}


def end_agent_span(span: Span, *, ended_ns: int, error_type: str | None) -> None:
    """End the agent's span, in every case, with its true end.

    An exception adds its type, never its text.
    """
    try:
        if error_type is not None:
            span.set_attribute(names.ERROR_TYPE, error_type)
            span.set_status(Status(StatusCode.ERROR))
    finally:
        span.end(end_time=ended_ns)
        added_at_end = getattr(span, ADDED_AT_END, None)
        if added_at_end:  # another thread ended the span before
            added_at_end.pop(span.get_span_context().span_id, None)


def open_run_span(
    tracer: trace.Tracer,
    agent: str,
    evaluated: SpanContext | None,
    placement: Placement,
    *,
    started_ns: int,
    attributes: Mapping[str, Any] | None = None,
    turns: Sequence[SpanContext] = (),
    context: Context | None = None,
) -> Span | None:
    """Start the run span ``evaluation {agent}``, linked to `turns`.

    Return None if the evaluated trace is not sampled.

    `context` is the evaluated span's, where the caller has it.
    """
    if evaluated is not None and not evaluated.trace_flags.sampled:
        return None
    is_linked = evaluated is not None and placement == "linked"
    # Not to the parent too: Jaeger would show the link in its place. The last of the turns is the
    # evaluated span.
    linked = [
        span_context
        for span_context in turns
        if evaluated is None or span_context.span_id != evaluated.span_id
    ]
    if evaluated is not None and is_linked:
        linked.append(evaluated)
    links = [Link(span_context) for span_context in linked]
    own: dict[str, Any] = {names.OPERATION_NAME: names.OPERATION_EVALUATION}
    if agent:
        own[names.AGENT_NAME] = agent
    if attributes is not None:
        own.update(attributes)
    if is_linked:
        context = Context()
    elif not context:
        context = context_of_span(evaluated)
    return tracer.start_span(
        f"{names.OPERATION_EVALUATION} {agent}".rstrip(),
        context=context,
        attributes=own,
        links=links,
        start_time=started_ns,
    )


class OwnTracerProviders(NamedTuple):
    """Where the application has none: one for each kind of span, with one exporter.

    Attributes:
        agents: The SDK's. Code of the host runs in an agent span, and may set attributes and
            events.
        evaluations: For spans that are ours alone.
    """

    agents: trace.TracerProvider
    evaluations: trace.TracerProvider

    def shutdown(self) -> None:
        """Shut both down. Their exporter is closed before."""
        for provider in self:
            provider.shutdown()  # type: ignore[attr-defined]


class SuiteSpan:
    """Holds the span of a test suite, above the run spans of its cases. It starts a trace of its own."""

    def __init__(self, tracer: trace.Tracer, name: str) -> None:
        self._span = tracer.start_span(
            f"test suite {name}", context=Context(), attributes={names.TEST_SUITE: name}
        )

    @property
    def context(self) -> SpanContext:
        return self._span.get_span_context()

    def end(self, status: names.SuiteStatus) -> None:
        """End the span with how the run ended."""
        self._span.set_attribute(names.TEST_SUITE_STATUS, status)
        self._span.end()


def context_of_evaluation(
    run_span: Span | None, evaluated: SpanContext | None, key: SamplingKey
) -> Context | None:
    """Return the context in which evaluators run.

    It is below the run span, and marked for readers of the spans of their calls.

    None if there is no span at all.
    """
    above = evaluated if run_span is None else run_span.get_span_context()
    marked = marked_context(above, key)
    if marked is None or not marked.is_valid:
        return None
    if run_span is not None and marked is run_span.get_span_context():
        return trace.set_span_in_context(run_span)
    return trace.set_span_in_context(NonRecordingSpan(marked))


def marked_context(span_context: SpanContext | None, key: SamplingKey) -> SpanContext | None:
    """Return the span context with the trace's mark in its trace state.

    Child spans inherit it, in other processes too.
    """
    if span_context is None:
        return None
    name = names.TRACE_STATE
    mark = key.mark(span_context.trace_id)
    state = span_context.trace_state
    if state and state.get(name) == mark:
        return span_context
    entries = [(name, mark)]
    if state:
        entries += [(other, value) for other, value in state.items() if other != name]
    return SpanContext(
        span_context.trace_id,
        span_context.span_id,
        span_context.is_remote,
        span_context.trace_flags,
        TraceState(entries[:_MAX_ENTRIES]),
    )


def attach_marked(key: SamplingKey) -> None:
    """Mark what runs in this context from now on as part of an evaluation, below an unsampled span."""
    trace_id = RANDOM.getrandbits(128) or 1  # 0 is no id
    span_id = RANDOM.getrandbits(64) or 1
    unsampled = SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags())
    nowhere = marked_context(unsampled, key)
    assert nowhere is not None
    otel_context.attach(trace.set_span_in_context(NonRecordingSpan(nowhere)))


def reference_of(span_context: SpanContext | None) -> SpanReference | None:
    """Return a span context as a reference that can be stored.

    None for no span context and for an invalid one.
    """
    if span_context is None or not span_context.is_valid:
        return None
    trace_state = span_context.trace_state.to_header() if span_context.trace_state else ""
    fields = {
        "trace_id": trace.format_trace_id(span_context.trace_id),
        "span_id": trace.format_span_id(span_context.span_id),
        "trace_flags": int(span_context.trace_flags),
        "trace_state": trace_state,
        "is_remote": span_context.is_remote,
    }
    return construct(SpanReference, fields)


def context_of_span(span_context: SpanContext | None) -> Context:
    """Return the context of a span that may have ended. Empty without a valid span context."""
    if span_context is None or not span_context.is_valid:
        return Context()
    return trace.set_span_in_context(NonRecordingSpan(span_context), Context())


def span_context_of(reference: SpanReference | None) -> SpanContext | None:
    """Return the span context that was stored as a reference, with its real flags.

    None without a reference.
    """
    if reference is None:
        return None
    trace_state = None
    if reference.trace_state:
        trace_state = TraceState.from_header([reference.trace_state])
    return SpanContext(
        trace_id=int(reference.trace_id, 16),
        span_id=int(reference.span_id, 16),
        is_remote=reference.is_remote,
        trace_flags=TraceFlags(reference.trace_flags),
        trace_state=trace_state,
    )


# An enumeration's name is looked up in Python: once here instead of for each event.
_INFO = (_logs.SeverityNumber.INFO, _logs.SeverityNumber.INFO.name)
_WARN = (_logs.SeverityNumber.WARN, _logs.SeverityNumber.WARN.name)


class EventLog:
    """Emits events through a logger provider."""

    def __init__(self, provider: _logs.LoggerProvider) -> None:
        self._logger = provider.get_logger(
            names.SCOPE_NAME, version=scope_version(), schema_url=names.SCHEMA_URL
        )
        self._takes_common = getattr(self._logger, "takes_common", False)

    def emit(
        self,
        name: str,
        context: Context,
        *,
        timestamp_ns: int,
        body: str,
        attributes: Mapping[str, Any],
        warn: bool,
        common: Mapping[str, Any] | None = None,
    ) -> None:
        """Write one event. Every string must have been sanitised.

        `common` are attributes that all events of one answer have. They come first.
        """
        severity, severity_text = _WARN if warn else _INFO
        more: dict[str, Any] = {}
        if common and self._takes_common:
            more["common"] = common
        elif common:
            attributes = {**common, **attributes}
        self._logger.emit(
            event_name=name,
            context=context,
            timestamp=timestamp_ns,
            severity_number=severity,
            severity_text=severity_text,
            body=body,
            attributes=attributes,
            **more,
        )
