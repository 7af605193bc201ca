"""The plan of the traffic: which conversation says what when, drawn from a seed before anything runs."""

from __future__ import annotations

import random
from typing import NamedTuple

from agenteval_otel.cli.demo.answers import FOLLOW_UPS, MOODS, SHARES_V1, SHARES_V2, TOPICS, Topic

__all__ = ["CALLS_PER_S", "Turn", "plan_turns"]

CALLS_PER_S = 30
_STREAMED, _ABANDONED, _SLOW, _TOOL_FAILS = 0.3, 0.05, 0.05, 0.05
_GOES_ON = 0.5
_MAX_TURNS = 4
_BETWEEN_TURNS = 0.06


class Turn(NamedTuple):
    """One call of the agent, as planned.

    Attributes:
        conversation, place: Which conversation, and the place in it, from 0.
        at_s: When it begins, in seconds since the start, if the turn before it is over by then.
        release: The prompt in force, 1 or 2.
        leave_after: Chunks after which the reader of a stream walks away; None for readers that stay.
        choice: Picks among the ways of saying the same, and seeds the latencies.
    """

    conversation: int
    place: int
    at_s: float
    release: int
    topic: Topic
    question: str
    mood: str
    streamed: bool
    slow: bool
    tool_fails: bool
    leave_after: int | None
    choice: int
    trace_id: int


def plan_turns(*, calls: int, seconds: float, seed: int, drop: bool = True) -> list[Turn]:
    """Exactly `calls` turns in the order of time, spread over `seconds`; the second prompt is in force from half-way.

    Args:
        calls: How many.
        seconds: Over how long.
        seed: The same seed gives the same turns.
        drop: Whether the second prompt is worse than the first.
    """
    rng = random.Random(seed)
    turns: list[Turn] = []
    waiting: list[tuple[float, Turn]] = []  # conversations that go on, and from when
    conversations = 0
    for number in range(calls):
        at_s = (number + rng.random()) * seconds / calls
        ready = next((item for item in waiting if item[0] <= at_s), None)
        if ready is not None:
            waiting.remove(ready)
            turn = _turn(rng, at_s, seconds, drop, before=ready[1])
        else:
            turn = _turn(rng, at_s, seconds, drop, conversation=conversations)
            conversations += 1
        turns.append(turn)
        if turn.place + 1 < _MAX_TURNS and rng.random() < _GOES_ON:
            waiting.append((at_s + seconds * _BETWEEN_TURNS * rng.uniform(0.8, 2.0), turn))
    return turns


def _turn(
    rng: random.Random, at_s: float, seconds: float, drop: bool, *, conversation: int = 0, before: Turn | None = None
) -> Turn:
    release = 2 if at_s >= seconds / 2 else 1
    shares = SHARES_V2 if drop and release == 2 else SHARES_V1
    topic = before.topic if before else rng.choice(TOPICS)
    question = rng.choice(FOLLOW_UPS).format(topic=topic.word) if before else topic.question.format(
        order=f"#{rng.randrange(4000, 9999)}"
    )  # fmt: skip
    mood = rng.choices(MOODS, shares)[0]
    streamed = rng.random() < _STREAMED and mood not in ("failed", "empty")
    return Turn(
        conversation=before.conversation if before else conversation, place=before.place + 1 if before else 0,
        at_s=at_s, release=release, topic=topic, question=question, mood=mood, streamed=streamed,
        slow=rng.random() < _SLOW, tool_fails=rng.random() < _TOOL_FAILS,
        leave_after=3 if streamed and rng.random() < _ABANDONED / _STREAMED else None,
        choice=rng.randrange(1 << 16), trace_id=rng.getrandbits(128) | 1,
    )  # fmt: skip
