"""A trace read: which of its spans are answers to evaluate, and the evaluation input of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from agenteval_otel.mappers.span import ReadSpan
from agenteval_otel.models import EvaluationInput

MAX_SPANS: Final = 10_000
"""Spans of one trace that are looked at; the assembler keeps fewer."""


@dataclass(slots=True, eq=False)
class Mapped:
    """An answer as its spans show it.

    Attributes:
        span: The evaluated span: the agent's, the workflow's, or a lone model call's.
        input: Without criteria and ground truth; `user_id` is not in it.
        user_id: As the application wrote it: what is kept of it is for the settings to say.
        mapper: The dialect of the evaluated span.
        content_switch: Where no content was captured, how it is switched on; None where there is an answer.
        spans: How many spans it was read from.
    """

    span: ReadSpan
    input: EvaluationInput
    user_id: str | None
    mapper: str
    content_switch: str | None
    spans: int


@dataclass(slots=True, eq=False)
class TraceReading:
    """What a trace holds.

    Attributes:
        answers: In the order of their start.
        not_understood: Spans of no known dialect, by the name of their scope.
        failed: Answers whose mapper raised, by its name and the exception's, such as ``openinference: KeyError``.
        left_out: Spans beyond the limit, and repeated ones.
    """

    answers: list[Mapped] = field(default_factory=list)
    not_understood: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    left_out: int = 0


def read_trace(spans: Iterable[ReadSpan], *, nested_agents: bool = False) -> TraceReading:
    """The answers of one trace, from those of its spans that have arrived, in any order. Never raises.

    Evaluated are agents, workflows that show an answer, and model calls, each where it lies below no other of them.
    `nested_agents` adds the agents below an evaluated one that have a name of their own.
    """
    raise NotImplementedError
