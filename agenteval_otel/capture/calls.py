"""The captured call: references only, taken on the caller's thread.

Nothing is copied, serialised or measured in proportion to the payload here. Text is immutable and travels by reference;
a mutable list or dictionary gets one shallow, bounded snapshot, so that what is judged is what was returned. Of an
exception only the class name is kept: the object would hold the host's frames.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from agenteval_otel.capture.sizes import estimate_bytes
from agenteval_otel.models import StreamEnd

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext

    from agenteval_otel.sampling.base import SamplingDecision

__all__ = [
    "CURRENT", "EVALUATING", "IDS", "OBJECT_CHARS", "SNAPSHOT_ITEMS", "STREAM_CHARS", "CapturedCall", "estimate_bytes",
    "fresh_call", "snapshot",
]  # fmt: skip

SNAPSHOT_ITEMS: Final = 1_000
"""How many items a list or dictionary may have to be copied."""
STREAM_CHARS: Final = 256 * 1024
"""How much of a stream is kept for evaluation; what comes after is passed on and not kept."""
OBJECT_CHARS: Final = 256
"""What a chunk that is no text counts for."""
IDS: Final = (str, int, UUID)
"""What an id may be for the caller's thread to read it: their text is made without a method of the host's."""


class CapturedCall:
    """One call of a monitored handler on its way to the evaluators; filled in as the call proceeds."""

    # What most calls never set are defaults of the class: one that is begun costs what it sets, and no more.
    settings: Any = None
    agent = ""
    prompt: Any = None
    arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    conversation: str | None = None
    others: dict[str, Any] | None = None
    answer: Any = None
    chunks: list[Any] | None = None
    error_type: str | None = None
    stream_end: StreamEnd | None = None
    span_context: SpanContext | None = None
    span: Span | None = None
    attached: Any = None
    token: Any = None
    decision: SamplingDecision | None = None
    draw = 0
    started_ns = 0
    started_tick = 0
    ended_ns = 0
    facts: dict[str, Any] | None = None
    settled = False
    # Of a sampler that is asked again after the answer: what it keeps, the answer's facts, the host's open span.
    memo: Any = None
    answer_facts: Any = None
    host_span: Span | None = None
    # The process that began it, which alone ends its span; what evaluates it.
    pid = 0
    evaluation: Any = None
    # What an attribute of the span says of sampling upstream, where the settings name one.
    upstream: Any = None

    def __init__(self, settings: Any, agent: str) -> None:
        self.settings = settings
        self.agent = agent

    def conversation_id(self) -> str | None:
        """The conversation's id, on the caller's thread: text or a plain id that `annotate` said, else the argument."""
        for name in ("conversation_id", "session_id"):
            said = self.facts.get(name) if self.facts is not None else None
            if type(said) in IDS:
                return str(said)
        return self.conversation

    def release(self) -> None:
        """Forget what the host's code made, once the evaluation input is built: a judge may take its time."""
        self.prompt = self.arguments = self.answer = self.chunks = self.facts = self.others = None

    def __repr__(self) -> str:
        return f"<CapturedCall {self.agent} {self.error_type or self.stream_end or 'answered'}>"


fresh_call: Final[Callable[[], CapturedCall]] = partial(object.__new__, CapturedCall)
"""A call that is yet to be filled in: the caller's thread makes them without running `__init__`."""

EVALUATING: Final = CapturedCall(None, "evaluation")
"""Stands in `CURRENT` while evaluators run: doors that see it step aside, so evaluations are never evaluated."""

CURRENT: Final[ContextVar[CapturedCall | None]] = ContextVar("agenteval_current_call", default=None)
"""The monitored call that the running code belongs to; None outside and inside calls that were not sampled."""


def snapshot(value: Any) -> Any:
    """A shallow copy of a plain list or dictionary of at most 1,000 items; anything else as it is."""
    kind = type(value)
    if (kind is list or kind is dict) and len(value) <= SNAPSHOT_ITEMS:
        return value.copy()
    return value
