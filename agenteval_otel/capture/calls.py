"""The captured call: what `take` detached from the host on the caller's thread.

Text is immutable and travels by reference; containers and objects become plain data of our own, so what is evaluated is
what was returned. Of an exception only the class name is kept: the object would hold the host's frames. Only a handler
with ``capture=`` keeps the host's own arguments and answer, for that function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from agenteval_otel.capture.detached import list_bytes, take
from agenteval_otel.models import StreamEnd

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext

    from agenteval_otel.scoring.probability import SamplingDecision

__all__ = [
    "CURRENT", "EVALUATING", "IDS", "OBJECT_CHARS", "STREAM_CHARS", "CapturedCall", "fresh_call",
]  # fmt: skip

STREAM_CHARS: Final = 256 * 1024
"""How much of a stream is kept for evaluation; what comes after is passed on and not kept."""
OBJECT_CHARS: Final = 256
"""What a chunk that is no text counts for, or a sixty-fourth of its size where that is more."""
_BYTES_PER_CHAR: Final = 64
_MOST_COPIED: Final = 1_000
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
    # The host's own answer, or its chunks by place; only for `capture=`.
    original: Any = None
    # Of what was taken: its size (texts that are taken as they are count when the call is submitted), whether something
    # was too large to be taken whole, and how many parts of the answer and the facts could not be read.
    size_bytes = 0
    truncated = False
    left_out = 0
    error_type: str | None = None
    stream_end: StreamEnd | None = None
    span_context: SpanContext | None = None
    span: Span | None = None
    # What its own span is given right before it ends: the SDK's cleaning of it would be on the caller's time.
    span_attributes: Mapping[str, Any] = {}
    attached: Any = None
    token: Any = None
    decision: SamplingDecision | None = None
    randomness = 0
    started_ns = 0
    started_tick = 0
    ended_ns = 0
    facts: dict[str, Any] | None = None
    settled = False
    # Of a sampler that is asked again after the answer: what it keeps, the answer's facts, the host's open span.
    memo: Any = None
    answer_facts: Any = None
    host_span: Span | None = None
    # The process that began it, which alone ends its span; what its open span keeps alive; what evaluates it.
    pid = 0
    span_bytes = 0
    evaluation: Any = None
    # What an attribute of the span says of sampling upstream, where the settings name one.
    upstream: Any = None

    def __init__(self, settings: Any, agent: str) -> None:
        self.settings = settings
        self.agent = agent

    def conversation_id(self) -> str | None:
        """The conversation's id, on the caller's thread: text or a plain id that `annotate` said, else the argument."""
        for name in ("conversation_id", "session_id"):
            conversation = self.facts.get(name) if self.facts is not None else None
            if type(conversation) in IDS:
                return str(conversation)
        return self.conversation

    def keep(self, value: Any) -> Any:
        """The detached form of an argument; its size counts for the call."""
        taken = take(value)
        self.size_bytes += taken.size_bytes
        return taken.value

    def keep_answer(self, answer: Any) -> None:
        """Take an answer that is no exact `str`; one of those is put in its place as it is."""
        self.answer = self._keep_part(answer)
        if self.arguments is not None:
            is_plain = type(answer) in (list, dict) and len(answer) <= _MOST_COPIED
            self.original = answer.copy() if is_plain else answer

    def keep_chunk(self, chunk: Any, chunks: list[Any]) -> int:
        """Add a chunk that is no exact `str`; gives what it takes of `STREAM_CHARS`."""
        if self.arguments is not None:
            self.original = self.original or {}
            self.original[len(chunks)] = chunk
        before = self.size_bytes
        value = self._keep_part(chunk)
        chunks.append(value)
        if type(value) is bytes or type(value) is str:
            self.size_bytes = before  # counted with the texts of the stream
            return len(value) or 1
        return max(OBJECT_CHARS, (self.size_bytes - before) // _BYTES_PER_CHAR)

    def keep_stream(self, chunks: list[Any], end: StreamEnd, *, truncated: bool) -> None:
        """Take a stream's chunks, which were taken one by one as they passed."""
        self.chunks, self.stream_end = chunks, end
        self.truncated = self.truncated or truncated
        self.size_bytes += list_bytes(chunks)

    def keep_facts(self) -> None:
        """Detach what was annotated, once, when the handler has ended."""
        if self.facts:
            self.facts = {name: self._keep_fact(value) for name, value in list(self.facts.items())}

    def originals(self) -> Any:
        """The answer or the chunks for ``capture=``: the host's own objects."""
        if self.chunks is None:
            return self.answer if self.original is None else self.original
        own = self.original or {}
        return [own.get(index, chunk) for index, chunk in enumerate(self.chunks)]

    def _keep_part(self, value: Any) -> Any:
        taken = take(value)
        self.size_bytes += taken.size_bytes
        self.truncated = self.truncated or taken.truncated
        self.left_out += taken.left_out
        return taken.value

    def _keep_fact(self, value: Any) -> Any:
        taken = take(value)
        self.size_bytes += taken.size_bytes
        self.left_out += taken.left_out + taken.truncated  # a fact bears no mark: what is cut is counted
        return taken.value

    def release(self) -> None:
        """Forget what the host's code made, once the evaluation input is built: a judge may take its time."""
        self.prompt = self.arguments = self.answer = self.chunks = self.facts = self.others = self.original = None

    def __repr__(self) -> str:
        return f"<CapturedCall {self.agent} {self.error_type or self.stream_end or 'answered'}>"


fresh_call: Final[Callable[[], CapturedCall]] = partial(object.__new__, CapturedCall)
"""A call that is yet to be filled in: the caller's thread makes them without running `__init__`."""

EVALUATING: Final = CapturedCall(None, "evaluation")
"""Stands in `CURRENT` while evaluators run: handlers that see it do nothing, so evaluations are never evaluated."""

CURRENT: Final[ContextVar[CapturedCall | None]] = ContextVar("agenteval_current_call", default=None)
"""The monitored call that the running code belongs to; None outside and inside calls that were not sampled."""
