"""Conversations put together from turns, in any order: when they are over, and what bounds them."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import Any

import pytest
from opentelemetry.trace import SpanContext, TraceFlags

from agenteval_otel.capture.assembly.conversations import (
    Conversation,
    ConversationAssembler,
    ConversationKey,
    ConversationSettings,
)
from agenteval_otel.models import EvaluationInput, Message
from agenteval_otel.models.value import Later, copy_with
from agenteval_otel.runtime.memory import MemoryBudget

SPAN = SpanContext(2**127 + 5, 2**63 + 7, False, TraceFlags(3))


class Room:
    """An assembler on a memory of its own; turns are named by a number, which is their start too."""

    def __init__(self, max_bytes: int = 1 << 30, **settings: Any) -> None:
        self.memory = MemoryBudget(max_bytes)
        self.memory.conversations.max_bytes = max_bytes
        self.assembler = ConversationAssembler(
            ConversationSettings(**settings), self.memory.conversations
        )

    def add(
        self,
        number: int,
        id: str = "c",
        *,
        now_s: float = 0.0,
        agent: str = "shop",
        service: str | None = None,
        probability: float | None = 1.0,
        **fields: Any,
    ) -> list[Conversation]:
        turn = EvaluationInput(
            prompt=f"q{number}", response=f"a{number}", conversation_id=id, **fields
        )
        closed, had_room = self.assembler.add(
            ConversationKey(id, agent, service),
            turn,
            span=SPAN,
            started_ns=number,
            last=number,
            probability=probability,
            now_s=now_s,
        )
        assert had_room
        return closed

    def taken(self, now_s: float) -> list[tuple[Any, list[str | None]]]:
        return [(part.end, prompts(part)) for part in self.assembler.take(now_s)]


def prompts(conversation: Conversation) -> list[str | None]:
    return [turn.prompt for turn in conversation.input().conversation or ()]


def test_a_conversation_is_over_when_it_was_idle() -> None:
    """Each turn begins the time anew; what comes afterwards is another conversation."""
    room = Room(idle_s=60.0)
    room.add(1, now_s=0.0)
    room.add(1, "d", now_s=1.0)
    room.add(2, now_s=50.0)
    assert room.assembler.next_s() == 61.0
    assert room.taken(60.9) == []
    assert room.taken(61.0) == [("idle", ["q1"])]
    assert room.taken(110.0) == [("idle", ["q1", "q2"])]
    room.add(3, now_s=200.0)
    assert room.taken(500.0) == [("idle", ["q3"])]
    assert (len(room.assembler), room.memory.used_bytes, room.assembler.next_s()) == (0, 0, None)


def test_a_marked_conversation_waits_for_turns_that_are_late() -> None:
    """Of another process, say: they come a moment after the last one, and stand in their place."""
    room = Room(settle_s=5.0)
    room.add(1)
    room.add(3, conversation_ends=True, now_s=10.0)
    room.add(2, now_s=12.0)
    assert room.taken(16.9) == []
    assert room.taken(17.0) == [("marked", ["q1", "q2", "q3"])]


def test_turns_stand_in_the_order_in_which_they_began() -> None:
    """Whatever the order in which they came; what is kept of the last is that of the one that began
    last.
    """
    room = Room()
    for number in (3, 4, 1, 4, 2):
        room.add(number)
    (conversation,) = room.assembler.take_all("shutdown")
    assert prompts(conversation) == ["q1", "q2", "q3", "q4", "q4"]
    assert (conversation.started_ns, conversation.last, len(conversation)) == (1, 4, 5)
    assert conversation.input().response == "a4"


def test_a_clock_that_is_wrong_neither_closes_nor_keeps_a_conversation() -> None:
    """Another host's clock puts its turns into a wrong place; idle time is measured by this
    process.
    """
    room = Room(idle_s=60.0)
    room.add(2**60, now_s=0.0)
    room.add(-5, now_s=50.0)
    assert room.taken(100.0) == []
    assert room.taken(110.0) == [("idle", ["q-5", f"q{2**60}"])]


def test_an_endless_conversation_is_evaluated_in_parts() -> None:
    """Each has the full number of turns; what follows begins another one, and memory stays bounded."""
    room = Room(max_turns=10)
    closed = [part for number in range(95) for part in room.add(number)]
    assert [(part.end, len(part)) for part in closed] == [("turn_limit", 10)] * 9
    assert prompts(closed[1])[0] == "q10"
    assert len(room.assembler) == 1
    assert 0 < room.memory.used_bytes < 3_000


def test_one_id_of_two_services_or_agents_is_two_conversations() -> None:
    """Ids are unique within an application, at most."""
    room = Room()
    for service, agent in (("a", "shop"), ("b", "shop"), (None, "shop"), ("a", "other")):
        room.add(1, service=service, agent=agent)
    assert len(room.assembler) == 4


def test_beyond_the_bounds_the_one_that_was_quiet_longest_is_evaluated_early() -> None:
    """In number and in bytes; nothing is lost."""
    room = Room(max_open=3)
    room.add(1, "a")
    room.add(1, "b")
    room.add(2, "a")
    assert not room.add(1, "c")
    (closed,) = room.add(1, "d")
    assert (closed.key.id, closed.end) == ("b", "no_room")
    crowded = Room(max_bytes=70_000)
    numbers = count()
    early = [
        part
        for number in range(200)
        for part in crowded.add(next(numbers), f"c-{number}", context={"x": number})
    ]
    assert all(part.end == "no_room" for part in early)
    assert len(early) + len(crowded.assembler) == 200
    assert 0 < crowded.memory.conversations.used_bytes <= 70_000


def test_where_others_took_the_memory_a_conversation_is_given_up() -> None:
    """A turn that has no room would leave a hole: no verdict on what is not whole, and the bytes
    come back.
    """
    room = Room()
    room.add(1)
    room.memory.captured_calls.reserve(10)
    room.memory.max_bytes = room.memory.used_bytes
    turn = EvaluationInput(prompt="q", conversation_id="c")
    fields: dict[str, Any] = {
        "span": None,
        "started_ns": 2,
        "last": 2,
        "probability": 1.0,
        "now_s": 0.0,
    }
    assert room.assembler.add(ConversationKey("c", "shop"), turn, **fields) == ([], False)
    assert (len(room.assembler), room.memory.used_bytes) == (0, 10)


def test_spans_and_fields_come_back_as_they_were() -> None:
    """Ids, flags and whether they are remote; of what is sent with every turn the first one's is
    kept.
    """
    room = Room()
    tools = {"tools": [{"name": "a"}]}
    history = [{"role": "system", "content": "Be brief."}]
    for number in (1, 2):
        room.add(
            number, agent_config=tools, message_history=history, tags={"tenant": "é💩"}, cost=0.5
        )
    (conversation,) = room.assembler.take_all("shutdown")
    assert conversation.spans() == [SPAN, SPAN]
    assert not conversation.spans()[0].is_remote
    whole = conversation.input()
    assert (whole.agent_config, whole.tags, whole.cost) == (tools, {"tenant": "é💩"}, 1.0)
    assert whole.conversation is not None
    assert [turn.message_history is None for turn in whole.conversation] == [False, True]
    assert [message.role for message in whole.message_history or ()] == [
        "system",
        "user",
        "assistant",
        "user",
    ]


@pytest.mark.parametrize(
    ("probabilities", "expected"), [((0.5, 0.25, 1.0), 0.25), ((0.5, None), None), ((1.0,), 1.0)]
)
def test_a_conversation_was_as_likely_as_its_least_likely_turn(
    probabilities: Any, expected: float | None
) -> None:
    """The same randomness decided on all of them; one of unknown probability makes it unknown."""
    room = Room()
    for number, probability in enumerate(probabilities):
        room.add(number, probability=probability)
    (conversation,) = room.assembler.take_all("shutdown")
    assert conversation.probability == expected


def test_what_is_counted_is_what_a_conversation_takes() -> None:
    """So that a bound in bytes is one: a thousand open ones, and not a multiple of their texts."""
    room = Room()
    for number in range(1_000):
        room.add(1, f"c-{number}")
    assert 900_000 < room.memory.conversations.used_bytes < 1_300_000


def test_a_conversation_is_evaluated_before_its_turns_take_too_much() -> None:
    """Repeated text takes a hundredth when it is packed; what it takes when it is evaluated counts."""
    room = Room()
    closed = [room.add(number, context={"page": "x" * 1024 * 1024}) for number in range(1, 10)]
    assert [len(parts) for parts in closed] == [0] * 7 + [1, 0]
    (conversation,) = closed[7]
    assert (conversation.end, len(conversation)) == ("turn_limit", 8)
    assert conversation.size_bytes < 256 * 1024
    assert 8 * 1024 * 1024 < conversation.unpacked_bytes < 9 * 1024 * 1024


def test_the_history_of_a_later_turn_is_not_looked_at() -> None:
    """The first turn's history stands before all others. What later turns bring again is neither
    read nor counted as memory: 200 turns of 1 MiB each stay one conversation.
    """
    looks: list[int] = []

    def read(number: int) -> list[Message]:
        looks.append(number)
        return [Message(role="system", content=f"{number}" * 1_000_000)]

    room = Room(max_turns=1_000)
    for number in range(200):
        history = Later(partial(read, number))
        turn = copy_with(EvaluationInput(prompt="q", response="a"), {"message_history": history})
        closed, had_room = room.assembler.add(
            ConversationKey("c", "shop"),
            turn,
            span=SPAN,
            started_ns=number,
            last=number,
            probability=1.0,
            now_s=0.0,
        )
        assert (closed, had_room) == ([], True)
    assert looks == [0]
    (conversation,) = room.assembler.take_all("shutdown")
    (first, *others) = conversation.input().conversation or ()
    assert [message.content for message in first.message_history or ()] == ["0" * 1_000_000]
    assert all(turn.message_history is None for turn in others)
