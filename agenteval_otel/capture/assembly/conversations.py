"""Conversations put together from turns, compact and bounded.

They are closed by a mark, by idle time or by the number of their turns.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Any, Final, Literal, NamedTuple

from opentelemetry.trace import SpanContext, TraceFlags
from opentelemetry.trace.span import TraceState
from pydantic import Field

from agenteval_otel.components.explained import FrozenSettings
from agenteval_otel.models import EvaluationInput
from agenteval_otel.models.scoring.probability import nested
from agenteval_otel.models.value import copy_with
from agenteval_otel.runtime.memory import MemoryPart, kept_bytes

End = Literal["marked", "idle", "turn_limit", "no_room", "shutdown", "reload"]
_HEAD: Final = struct.Struct(">Q16s8sB")  # start in nanoseconds, trace id, span id, trace flags
_REMOTE: Final = 0x80  # beside the trace flags
_LEFT_OUT: Final = {"criteria", "conversation"}
# Every client sends its history and its tools with each turn: the first turn's are enough.
_OF_FIRST_TURN: Final[dict[str, Any]] = {"message_history": None, "agent_config": None}
_TURN_BYTES: Final = 64
_UNPACKED_BYTES: Final = 8 * 1024 * 1024
"""Larger conversations are evaluated as they are: repeated text takes a hundredth when packed."""
_CONVERSATION_BYTES: Final = 900
_MOST_EVICTED: Final = 16  # for one turn


class ConversationSettings(FrozenSettings):
    """How turns are put together for evaluators of conversations.

    Without such evaluators, no turns are kept.

    Attributes:
        idle_s: Seconds without a turn after which a conversation is over.
        settle_s: Seconds for which late turns are accepted after the one with
            ``annotate(conversation_ends=True)``.
        max_turns: Number of turns after which a conversation is evaluated, or earlier once they
            take 8 MiB. Later turns start another one.
        max_open: Limit of open conversations. Above it, the one idle the longest is evaluated
            early.
        max_bytes: Memory limit of open conversations, within ``max_waiting_bytes``. Above it, as
            with `max_open`.
    """

    idle_s: float = Field(default=1_800.0, gt=0, le=604_800)
    settle_s: float = Field(default=2.0, ge=0, le=3_600)
    max_turns: int = Field(default=100, ge=1, le=1_000)
    max_open: int = Field(default=10_000, ge=1)
    max_bytes: int = Field(default=32 * 1024 * 1024, ge=65_536)


class ConversationKey(NamedTuple):
    """Identifies a conversation: two services, or two agents, may use the same id."""

    id: str
    agent: str
    service: str | None = None


class Conversation:
    """Turns of one conversation, compressed.

    Closed it has an `end`, and gives its input and its spans.

    Attributes:
        unpacked_bytes: What its turns take while they are evaluated.
        last: What the caller keeps of the turn that began last. It is opaque here.
        probability: That all turns were sampled: the smallest of theirs, as the same randomness
            decided all.
    """

    __slots__ = (
        "_started_ns",
        "_turns",
        "end",
        "key",
        "last",
        "last_s",
        "probability",
        "size_bytes",
        "unpacked_bytes",
    )

    def __init__(self, key: ConversationKey) -> None:
        self.key = key
        self.last_s = 0.0
        self.size_bytes = _CONVERSATION_BYTES + kept_bytes(key)
        self.unpacked_bytes = 0
        self.last: Any = None
        self.end: End | None = None
        self.probability: float | None = None
        self._turns: list[bytes] = []
        self._started_ns = 0

    def __len__(self) -> int:
        return len(self._turns)

    def _add(self, turn: bytes, started_ns: int, last: object, probability: float | None) -> None:
        self.probability = probability if not self._turns else nested(self.probability, probability)
        self._turns.append(turn)
        if started_ns >= self._started_ns:
            self._started_ns = started_ns
            self.last = last

    @property
    def started_ns(self) -> int:
        """Return when its first turn began."""
        return int.from_bytes(min(self._turns)[:8])

    def _in_order(self) -> list[bytes]:
        # by their start; of the same in the order of arrival
        return sorted(self._turns, key=lambda turn: turn[:8])

    def input(self) -> EvaluationInput:
        """Return all turns as one input, in the order in which they began.

        The order in which they came does not count.
        """
        turns = [unpacked(memoryview(turn)[_HEAD.size :]) for turn in self._in_order()]
        return EvaluationInput(conversation=turns)

    def spans(self, trace_state: TraceState | None = None) -> list[SpanContext]:
        """Return the evaluated spans of the turns that have one, in order.

        Each of them gets `trace_state`, which is that of the last one.
        """
        contexts = []
        for turn in self._in_order():
            _, trace_id, span_id, flags = _HEAD.unpack_from(turn)
            if not any(span_id):
                continue  # a turn without a span
            trace_flags = TraceFlags(flags & ~_REMOTE)
            context = SpanContext(
                int.from_bytes(trace_id),
                int.from_bytes(span_id),
                is_remote=bool(flags & _REMOTE),
                trace_flags=trace_flags,
                trace_state=trace_state,
            )
            contexts.append(context)
        return contexts


def packed(evaluation_input: EvaluationInput) -> bytes:
    """Return the input's fields but some as compressed JSON: 20 us for a short one.

    Raises if a value has no form in JSON.
    """
    text = evaluation_input.__pydantic_serializer__.to_json(
        evaluation_input, exclude_none=True, exclude=_LEFT_OUT
    )
    # a small window: nothing large is set up for a short text
    compress = zlib.compressobj(1, zlib.DEFLATED, -12, 5)
    return compress.compress(text) + compress.flush()


def unpacked(data: bytes | memoryview) -> EvaluationInput:
    """Return the input that `packed` was given, without the fields that it left out."""
    return EvaluationInput.model_validate_json(zlib.decompress(data, -zlib.MAX_WBITS))


def _encoded(turn: EvaluationInput, span: SpanContext | None, started_ns: int) -> bytes:
    """Return the turn's start and span as they are, then its fields."""
    head = _HEAD.pack(started_ns, b"", b"", 0)
    if span is not None:
        flags = span.trace_flags & ~_REMOTE | (_REMOTE if span.is_remote else 0)
        head = _HEAD.pack(started_ns, span.trace_id.to_bytes(16), span.span_id.to_bytes(8), flags)
    return head + packed(turn)


class ConversationAssembler:
    """Keeps open conversations. Any thread may call it. Its lock is closed for microseconds."""

    def __init__(self, settings: ConversationSettings, memory: MemoryPart) -> None:
        self.settings = settings
        self._memory = memory
        self._lock = Lock()
        # Both in the order of their closing: by the last turn, and by the mark.
        self._open: dict[ConversationKey, Conversation] = {}
        self._ending: dict[ConversationKey, Conversation] = {}

    def __repr__(self) -> str:
        return f"<ConversationAssembler open={len(self)}>"

    def __len__(self) -> int:
        return len(self._open) + len(self._ending)

    def add(
        self,
        key: ConversationKey,
        turn: EvaluationInput,
        *,
        span: SpanContext | None,
        started_ns: int,
        last: object,
        probability: float | None,
        now_s: float,
    ) -> tuple[list[Conversation], bool]:
        """Take a turn.

        Return the conversations that are closed by it, and whether there was room for it.

        Without room, the turn's conversation is dropped. `now_s` is this process's clock:
        `started_ns` may be another host's, and only puts turns into order.
        """
        is_first = key not in self._open and key not in self._ending
        if not is_first:
            turn = copy_with(turn, _OF_FIRST_TURN)
        encoded = _encoded(turn, span, max(0, started_ns))
        unpacked_bytes = kept_bytes(turn)
        size_bytes = len(encoded) + _TURN_BYTES
        closed: list[Conversation] = []
        with self._lock:
            ending = self._ending.pop(key, None)
            conversation = ending or self._open.pop(key, None)
            reserved = 0 if conversation is None else conversation.size_bytes
            conversation = conversation or Conversation(key)
            needed_bytes = size_bytes + conversation.size_bytes - reserved
            if not self._makes_room(needed_bytes, closed, is_new=not reserved):
                self._memory.release(reserved)
                return closed, False
            conversation._add(encoded, started_ns, last, probability)
            conversation.size_bytes += size_bytes
            conversation.unpacked_bytes += unpacked_bytes
            conversation.last_s = now_s
            is_large = conversation.unpacked_bytes > _UNPACKED_BYTES
            if is_large or len(conversation) >= self.settings.max_turns:
                closed.append(self._closed(conversation, "turn_limit"))
            elif turn.conversation_ends or ending is not None:
                self._ending[key] = conversation
            else:
                self._open[key] = conversation
        return closed, True

    def take(self, now_s: float) -> list[Conversation]:
        """Close what was idle for long enough, and what was marked as over."""
        with self._lock:
            marked = _until(self._ending, now_s - self.settings.settle_s)
            closed = [self._closed(conversation, "marked") for conversation in marked]
            idle = _until(self._open, now_s - self.settings.idle_s)
            closed += [self._closed(conversation, "idle") for conversation in idle]
        return closed

    def take_all(self, end: End) -> Iterator[Conversation]:
        """Close every conversation, one by one."""
        while True:
            with self._lock:
                some = self._ending or self._open
                if not some:
                    return
                closed = self._closed(some.pop(next(iter(some))), end)
            yield closed

    def remove(self, is_concerned: Callable[[Conversation], bool]) -> list[Conversation]:
        """Remove the open conversations that match and return them. Matching runs without the lock."""
        with self._lock:
            every = [*self._open.values(), *self._ending.values()]
        concerned = [conversation for conversation in every if is_concerned(conversation)]
        removed = []
        with self._lock:
            for conversation in concerned:
                for part in (self._open, self._ending):
                    if part.get(conversation.key) is conversation:
                        del part[conversation.key]
                        removed.append(conversation)
        self._memory.release(sum(conversation.size_bytes for conversation in removed))
        return removed

    def next_s(self) -> float | None:
        """Return when `take` will close something next. Return None while no conversation is open."""
        closings_s = []
        with self._lock:
            if self._open:
                first_open = next(iter(self._open.values()))
                closings_s.append(first_open.last_s + self.settings.idle_s)
            if self._ending:
                first_ending = next(iter(self._ending.values()))
                closings_s.append(first_ending.last_s + self.settings.settle_s)
        return min(closings_s, default=None)

    def _makes_room(self, size_bytes: int, closed: list[Conversation], *, is_new: bool) -> bool:
        """Tell whether the bytes were reserved.

        Where room is missing, close the conversations that were quiet the longest.
        """
        too_many = is_new and len(self) >= self.settings.max_open
        for _ in range(_MOST_EVICTED):
            if not too_many and self._memory.reserve(size_bytes):
                return True
            some = self._open or self._ending
            if not some:
                return False
            closed.append(self._closed(some.pop(next(iter(some))), "no_room"))
            too_many = False
        return False

    def _closed(self, conversation: Conversation, end: End) -> Conversation:
        conversation.end = end
        self._memory.release(conversation.size_bytes)
        return conversation


def _until(part: dict[ConversationKey, Conversation], since_s: float) -> Sequence[Conversation]:
    """Take the first ones, as far as they had no turn since then."""
    taken: list[Conversation] = []
    while part:
        key = next(iter(part))
        if part[key].last_s > since_s:
            break
        taken.append(part.pop(key))
    return taken
