"""A span as it was read, from OTLP or from the SDK in this process.

It has plain values, with what mappers ask for.

Nothing is imported for it: OTLP messages and the SDK's spans are read by their fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agenteval_otel import semconv
from agenteval_otel.semconv import OPERATION_INVOKE_AGENT, OPERATION_NAME, SCOPE_NAME, TRACE_STATE

MAX_DEPTH: Final = 32
# of one span, event or mapping; OpenInference has one for each field of a message
MAX_ATTRIBUTES: Final = 1_000
ERROR_STATUS: Final = 2  # the status code, in OTLP and in the SDK
SAMPLED: Final = 1  # a span that was exported is; older exporters leave the flags out
_NONE: Mapping[str, Any] = {}


@dataclass(slots=True, eq=False)
class ReadEvent:
    """An event of a span, or a log record that belongs to it, of which `body` is the body."""

    name: str
    time_ns: int
    attributes: Mapping[str, Any]
    body: Any = None


_OUR_NAMES: Final = {name: name for name in vars(semconv).values() if isinstance(name, str)}
"""The names of the conventions, as strings that are here already. Names from outside are never
interned: what Python 3.12 interns it keeps to the end of the process."""


@dataclass(slots=True, eq=False)
class ReadSpan:
    """A span as it was read.

    Attributes:
        parent_id: None for the root of a trace. The parent of another span need not have been read.
        kind: As in OTLP: 1 internal, 2 server, 3 client, 4 producer, 5 consumer, 0 unknown.
        start_ns, end_ns: Nanoseconds since the epoch. Clocks of several hosts may disagree.
        attributes: Values are str, bool, int, float, lists and dictionaries of these, or None.
        events: Of the span, and its log records.
        scope: Name of the instrumentation scope, `scope_version` its version.
        resource: Attributes of the resource, in one mapping for all spans of it.
        flags: Trace flags. 1 is sampled.
        mapper: The dialect's, once `mapper_of` knows it.
        is_marked: Its trace state has the mark of an evaluation in this trace, made with our key.
            The sender of a request chooses its trace state, so the entry alone says nothing.
    """

    trace_id: int
    span_id: int
    parent_id: int | None
    name: str
    kind: int
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any]
    events: Sequence[ReadEvent] = ()
    is_error: bool = False
    status_message: str = ""
    scope: str = ""
    scope_version: str = ""
    resource: Mapping[str, Any] = field(default_factory=dict)
    trace_state: str = ""
    flags: int = 1
    mapper: Any = None
    is_marked: bool = False

    @property
    def duration_s(self) -> float:
        """Return the seconds from start to end, 0.0 if the end is before the start."""
        return max(0, self.end_ns - self.start_ns) / 1e9

    @property
    def is_evaluation(self) -> bool:
        """Tell whether it is a span of an evaluation: ours, or a judge's, which is marked."""
        if self.scope == SCOPE_NAME:
            # else the agent's that we started
            return self.attributes.get(OPERATION_NAME) != OPERATION_INVOKE_AGENT
        return self.is_marked

    def check_mark(self, is_mark: Callable[[str, int], bool]) -> None:
        """Set `is_marked`: `is_mark` says whether a value is the mark of a trace."""
        if TRACE_STATE not in self.trace_state:
            return
        for entry in self.trace_state.split(","):
            name, _, value = entry.strip().partition("=")
            if name == TRACE_STATE:
                self.is_marked = is_mark(value, self.trace_id)
                return


def plain_attributes(pairs: Sequence[Any]) -> dict[str, Any]:
    """Return the attributes that OTLP's ``KeyValue`` messages hold.

    Of a key that is there twice, the last one counts.
    """
    if len(pairs) > MAX_ATTRIBUTES:
        pairs = pairs[:MAX_ATTRIBUTES]
    # Most attributes are text, then counts: both are tried first, because `WhichOneof` costs more
    # than all the rest. Names repeat, so the known ones are shared, which leaves the processor's
    # caches to the values.
    known = _OUR_NAMES.get
    return {
        known(key := pair.key, key): (value := pair.value).string_value
        or value.int_value
        or plain_value(value)
        for pair in pairs
    }


def plain_value(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Return what an OTLP ``AnyValue`` message holds.

    Return None if it is empty, or deeper than 32 levels.
    """
    kind = value.WhichOneof("value")
    if kind == "array_value":
        if depth == 0:
            return None
        items = value.array_value.values[:MAX_ATTRIBUTES]
        return [plain_value(item, depth - 1) for item in items]
    if kind == "kvlist_value":
        if depth == 0:
            return None
        pairs = value.kvlist_value.values[:MAX_ATTRIBUTES]
        return {pair.key: plain_value(pair.value, depth - 1) for pair in pairs}
    if kind == "bytes_value":
        return value.bytes_value.decode("utf-8", "replace")
    return None if kind is None else getattr(value, kind)


def spans_of_otlp(resource_spans: Iterable[Any]) -> Iterator[ReadSpan]:
    """Yield the spans of OTLP's ``ResourceSpans`` messages, as a request or a file has them."""
    for group in resource_spans:
        resource = plain_attributes(group.resource.attributes)
        for scope_spans in group.scope_spans:
            # Read once: each access to a message's text makes another one.
            name = scope_spans.scope.name
            version = scope_spans.scope.version
            for span in scope_spans.spans:
                yield span_of_otlp(span, resource, name, version)


def span_of_otlp(
    span: Any, resource: Mapping[str, Any], scope: str, scope_version: str
) -> ReadSpan:
    """Return one ``Span`` message as a span. Its resource and its scope are beside it in OTLP."""
    parent = span.parent_span_id
    status = span.status
    otlp_events = span.events
    events: Sequence[ReadEvent] = ()
    if otlp_events:
        events = [
            ReadEvent(event.name, event.time_unix_nano, plain_attributes(event.attributes))
            for event in otlp_events
        ]
    return ReadSpan(
        int.from_bytes(span.trace_id, "big"),
        int.from_bytes(span.span_id, "big"),
        int.from_bytes(parent, "big") if parent else None,
        span.name,
        span.kind,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        plain_attributes(span.attributes),
        events,
        status.code == ERROR_STATUS,
        status.message,
        scope,
        scope_version,
        resource,
        span.trace_state,
        span.flags & 0xFF | SAMPLED,
    )


def event_of_log(record: Any) -> ReadEvent:
    """Return a ``LogRecord`` message as an event of the span that its ids name.

    Older libraries put the event's name into an attribute.
    """
    attributes = plain_attributes(record.attributes)
    name = record.event_name or attributes.get("event.name")
    body = plain_value(record.body) if record.HasField("body") else None
    return ReadEvent(
        name if isinstance(name, str) else "",
        record.time_unix_nano or record.observed_time_unix_nano,
        attributes,
        body,
    )


def span_of_sdk(span: Any) -> ReadSpan:
    """Return a ``ReadableSpan`` of the SDK as a span.

    Its attributes are taken as they are: it has ended, they no longer change.
    """
    context = span.context
    parent = span.parent
    scope = span.instrumentation_scope
    scope_name = ""
    scope_version = ""
    if scope is not None:
        scope_name = scope.name
        scope_version = scope.version or ""
    status = span.status
    events = [
        ReadEvent(event.name, event.timestamp, event.attributes or _NONE) for event in span.events
    ]
    return ReadSpan(
        context.trace_id,
        context.span_id,
        None if parent is None else parent.span_id,
        span.name,
        span.kind.value + 1,
        span.start_time or 0,
        span.end_time or 0,
        span.attributes or _NONE,
        events,
        status.status_code.value == ERROR_STATUS,
        status.description or "",
        scope_name,
        scope_version,
        span.resource.attributes,
        context.trace_state.to_header(),
        int(context.trace_flags),
    )
