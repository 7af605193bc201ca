"""Poison: values that break careless code, in every field of a response or of a score that can carry them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.models import Score

__all__ = ["PATIENCE_S", "POISONS", "Poison"]

PATIENCE_S = 60.0
"""How long is waited for what a batch of calls comes to, however slow the machine is."""

SURROGATE = "poisoned \ud800 text"
LARGE = "poisoned " + "x" * (10 * 1024 * 1024)


class Hostile:
    """Raises from every method that careless code calls."""

    def __str__(self) -> str:
        raise RuntimeError("hostile")

    __repr__ = __len__ = __bool__ = __iter__ = __eq__ = __hash__ = __str__  # type: ignore[assignment]


class HostileError(Exception):
    """An exception that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("hostile")

    __repr__ = __str__


class Poison(NamedTuple):
    """What one of the calls does otherwise: its answer, prompt, facts, agent, and what its evaluator does."""

    answer: Any = "poisoned"
    prompt: Any = "a question"
    facts: dict[str, Any] = {}
    agent: str = "agent"
    judge: Callable[[], Any] | None = None


def _cycle() -> Any:
    cycle: dict[str, Any] = {"text": "poisoned"}
    cycle["again"] = [cycle]
    return cycle


def _deep() -> Any:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    return deep


def _raises(error: BaseException) -> Any:
    raise error


_VALUES: dict[str, Callable[[], Any]] = {
    "surrogate": lambda: SURROGATE, "NUL": lambda: "poisoned \0 text", "10 MB": lambda: LARGE, "cycle": _cycle,
    "depth": _deep, "hostile": Hostile, "not serialisable": object, "NaN": lambda: {"poisoned": float("nan")},
    "odd keys": lambda: {SURROGATE: 1, ("a",): 2, None: 3},
}  # fmt: skip
_FACTS = (
    "metadata", "context", "ground_truth", "tool_calls", "message_history", "model", "conversation_id", "response_id",
    "usage", "cost", "session_id", "response", "no such fact",
)  # fmt: skip
_SCORES: dict[str, Callable[[], Any]] = {
    "NaN score": lambda: Score(value=float("nan")), "infinite score": lambda: Score(value=float("inf")),
    "huge score": lambda: Score(value=10**400), "no score": object, "category": lambda: Score(value=SURROGATE),
    "large category": lambda: Score(value=LARGE), "NUL category": lambda: Score(value="a\0b"),
    "label": lambda: Score(value=1.0, label=SURROGATE), "large label": lambda: Score(value=1.0, label=LARGE),
    "reason code": lambda: Score(value=1.0, reason_code=SURROGATE),
    "large reason code": lambda: Score(value=1.0, reason_code=LARGE),
    "reasoning": lambda: Score(value=1.0, reasoning=SURROGATE), "metadata": lambda: Score(value=1.0, metadata=_cycle()),
    "hostile metadata": lambda: Score(value=1.0, metadata={"a": Hostile()}),
    "error type": lambda: _raises(EvaluationError("x", error_type=SURROGATE)),
    "large error type": lambda: _raises(EvaluationError("x", error_type=LARGE)),
    "error message": lambda: _raises(ValueError(SURROGATE)), "large error": lambda: _raises(ValueError(LARGE)),
    "hostile error": lambda: _raises(HostileError()), "skip": lambda: _raises(EvaluationSkipped(SURROGATE)),
}  # fmt: skip

POISONS: dict[str, Callable[[], Poison]] = {
    **{f"answer: {name}": lambda make=make: Poison(answer=make()) for name, make in _VALUES.items()},  # type: ignore[misc]
    **{f"prompt: {name}": lambda make=make: Poison(prompt=make()) for name, make in _VALUES.items()},  # type: ignore[misc]
    **{
        f"fact {fact}: {name}": lambda fact=fact, make=make: Poison(facts={fact: make()})  # type: ignore[misc]
        for fact in _FACTS for name, make in _VALUES.items()
    },
    **{f"judge: {name}": lambda make=make: Poison(judge=make) for name, make in _SCORES.items()},  # type: ignore[misc]
    "agent: surrogate": lambda: Poison(agent="poisoned \ud800"),
    "agent: NUL": lambda: Poison(agent="poisoned \0"),
    "agent: 10 MB": lambda: Poison(agent=LARGE),
}  # fmt: skip
