"""C2: a failure is never a score, whatever an evaluator gives wherever it runs, and whatever a
worker answers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import numpy
import pytest
from pydantic import Field

from agenteval_otel.engine.execution.wire import answer_of
from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators import Evaluator, Func
from agenteval_otel.evaluators.base import Execution
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult, Score
from tests.promises.bench import Bench, assert_average, assert_emitted, assert_one_of_three
from tests.promises.figures import sized
from tests.testing.doubles import Free

OUTPUTS = sized(600, 5_000)


def _scored(criterion: str) -> EvaluationResult:
    return EvaluationResult(criterion_name=criterion, score=1.0, evaluator_type="x")


def _give(value: Any) -> Any:
    """Return it, or raise it."""
    if isinstance(value, BaseException):
        raise value.with_traceback(None)
    return value


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class Lying(str):
    def __len__(self) -> int:
        raise RuntimeError("hostile")

    __format__ = __float__ = __eq__ = lower = __len__  # type: ignore[assignment]
    __hash__ = str.__hash__


class LyingNumber(float):
    def __le__(self, other: Any) -> bool:
        raise RuntimeError("hostile")

    __ge__ = __lt__ = __gt__ = __float__ = __le__  # type: ignore[assignment]


class LyingScore(Score):
    @property
    def value(self) -> Any:  # type: ignore[override]
        raise RuntimeError("hostile")


NO_SCORES: tuple[Any, ...] = (
    float("nan"),
    1e999,
    10**400,
    None,
    [0.5],
    {"score": 0.5},
    b"0.5",
    1j,
    Decimal("NaN"),
    Fraction(3, 2),
    numpy.float32("nan"),
    numpy.array([0.5]),
    object(),
)
FAILURES: tuple[tuple[Any, str], ...] = (
    *((value, "invalid_score") for value in NO_SCORES),
    (_scored("other"), "invalid_score|invalid_result"),
    (ValueError("bad"), "ValueError"),
    (KeyError("score"), "KeyError"),
    (SystemExit(0), "SystemExit"),
    (RecursionError(), "RecursionError"),
    (MemoryError(), "MemoryError"),
    (TimeoutError("t"), "TimeoutError"),
    (Speechless(), "Speechless"),
    (StopIteration(1), "StopIteration|RuntimeError"),
    (asyncio.CancelledError(), "cancelled|CancelledError"),
    (EvaluationError("x", error_type="context_overflow"), "context_overflow"),
    (EvaluationSkipped("nothing to say"), ""),
)
"""What an evaluator may give or raise instead of a score, and the word for it; none where it
abstains.
"""


class Raw(Evaluator, type="c2.Raw"):
    """Gives for its two criteria the list that its action makes."""

    act: Any = Field(exclude=True, repr=False)

    def preferred_execution(self) -> Execution:
        return "inline"

    def criteria(self) -> tuple[EvaluationCriteria, ...]:
        return tuple(
            EvaluationCriteria(name=name, scale="numeric") for name in ("judged", "second")
        )

    async def evaluate(
        self, evaluation_input: EvaluationInput, criteria: Sequence[EvaluationCriteria]
    ) -> list[EvaluationResult]:
        actual: list[EvaluationResult] = self.act()
        return actual


def _awaiting(act: Callable[[], Any]) -> Evaluator:
    async def judged(evaluation_input: EvaluationInput) -> Any:
        return act()

    return Func.of(judged)


EXECUTIONS: dict[str, Callable[[Callable[[], Any]], Evaluator]] = {
    "inline": lambda act: Free(criterion_name="judged", action=lambda _: act()),
    "thread": lambda act: Func.of(lambda _: act(), criterion_name="judged", execution="thread"),
    "async": _awaiting,
}


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_each_failure_has_its_word(execution: str, bench: Bench) -> None:
    """Each way of not scoring leaves no score, and a word that tells the ways apart; abstaining is
    no failure.
    """
    for fault, word in FAILURES:
        (result,) = bench.judge(EXECUTIONS[execution](partial(_give, fault)))
        assert result.status == ("failed" if word else "skipped"), type(fault)
        assert_one_of_three(result)
        if word:
            assert result.error_type in word.split("|"), type(fault)
        assert bench.kept.saved[-1].overall_score is None, type(fault)


ANSWERS = (
    "NaN",
    "nan",
    "Infinity",
    "1e999",
    "-1e999",
    "8/10",
    "8 / 10",
    "18/20",
    "",
    " ",
    "ten",
    '```json\n{"score": 1}\n```',
    '{"score": 0.',
    "I cannot help with that.",
    "Score: 0.9",
    "9" * 5_000,
    "\u0661",
    "1_000",
    "--1",
    "1,5",
)
"""What models answer instead of a number between 0 and 1 or 1 and 100."""


def _some_value(dice: random.Random) -> Any:
    plain: tuple[Any, ...] = (
        float("nan"),
        float("inf"),
        -1e999,
        10**400,
        -(10**400),
        10**20,
        250.0,
        -0.5,
        0.5,
        0,
        1,
        7,
        True,
        False,
        None,
        Decimal("0.5"),
        numpy.float64(0.5),
        numpy.float64("nan"),
        numpy.int64(1),
        numpy.bool_(True),
        numpy.float16(0.1),
        Lying("x"),
        Lying("NaN"),
        LyingNumber(0.5),
        LyingNumber("nan"),
        b"1",
        [],
        {},
        object(),
        1j,
        Fraction(1, 3),
        "pass",
        "fail",
        "yes",
        "0.5",
        "85%",
        "4 stars",
        "\ud800",
        "\0",
        "x" * 5_000,
        *ANSWERS,
    )
    return dice.choice(plain)


def _some_result(dice: random.Random) -> Any:
    fields: dict[str, Any] = {
        "criterion_name": dice.choice(["judged", "judged", "second", "other", ""]),
        "evaluator_type": "x",
        "score": _some_value(dice),
        "error": dice.choice([None, None, "broke", ""]),
        "error_type": dice.choice([None, "timeout", "", "x" * 500, "\ud800"]),
        "skip_reason": dice.choice([None, None, None, "nothing", ""]),
        "normalized": dice.choice([None, 0.5, 7.0, -1.0, float("nan"), 1e999]),
        "label": dice.choice([None, "pass", "odd"]),
        "passed": dice.choice([None, True, False]),
    }
    if dice.random() < 0.5:
        return EvaluationResult.model_construct(**{**_DEFAULTS, **fields})
    try:
        return EvaluationResult(**fields)
    except Exception:
        return dice.choice([None, {}, "a result", Score(value=1.0)])


_DEFAULTS = {
    name: field.get_default(call_default_factory=True)
    for name, field in EvaluationResult.model_fields.items()
}


def _some_act(dice: random.Random) -> Callable[[], Any]:
    kind = dice.randrange(5)
    if kind == 0:
        fault, _ = dice.choice(FAILURES)
        return lambda: _give(fault)
    if kind == 1:
        return lambda: LyingScore.model_construct(label="pass", passed=True)
    if kind == 2:
        value = _some_value(dice)
        label, passed = dice.choice([None, "pass", "odd"]), dice.choice([None, True, False])
        return lambda: Score(value=value, label=label, passed=passed)
    value = _some_value(dice)
    return lambda: value


def _some_answer(dice: random.Random) -> tuple[Any, Any]:
    """What comes back from a worker process, or from something that answers in its place."""
    score = dice.choice(
        [0.5, float("nan"), float("inf"), None, "8/10", True, int("9" * 400), [1], {"a": 1}, ""]
    )
    error_type = dice.choice([None, "timeout", 1, "x" * 999])
    fields = {
        "criterion_name": dice.choice(["judged", "second", "other", 1]),
        "evaluator_type": "x",
        "score": score,
        "error": dice.choice([None, "broke", "", 1]),
        "error_type": error_type,
        "normalized": dice.choice([None, 0.5, float("nan"), 9, float("inf"), "x"]),
    }
    values = [
        fields.get(name, field.default) for name, field in EvaluationResult.model_fields.items()
    ]
    values = values[: len(values) - dice.choice([0, 1, 1, 1, 1, 2])]
    body = dice.choice(
        [[values], [values], [values, values], values, [[values, None]], None, [], {}, "nonsense"]
    )
    kind = dice.choice(
        ["results", "results", "results", "other", "failed", "skipped", "?", None, 1]
    )
    if kind in ("failed", "skipped") and dice.random() < 0.8:
        body = [dice.choice(["ValueError", "", "__class__", "\0", 1]), error_type, "m"]
    return kind, body


def _some_evaluator(dice: random.Random) -> Evaluator:
    kind = dice.randrange(8)
    if kind < 4:
        execution = dice.choice(["inline", "inline", "thread", "async"])
        return EXECUTIONS[execution](_some_act(dice))
    if kind < 6:
        results = [_some_result(dice) for _ in range(dice.choice([0, 1, 1, 2, 2, 3]))]
        return Raw(act=lambda: results)
    answer = answer_of(*_some_answer(dice))
    return Raw(act=lambda: _give(answer))


@pytest.mark.sized
def test_fuzzed_outputs(bench: Bench, promise: Callable[..., None]) -> None:
    """Of thousands of wrong outputs none leaves a result with an error and a score, or a share in
    any sum.
    """
    dice = random.Random(2)
    for number in range(OUTPUTS):
        results = bench.judge(_some_evaluator(dice))
        assert results, f"output {number} left no result"
        for result in results:
            assert_one_of_three(result)
        assert_average(bench.kept.saved[-1])
    counts = assert_emitted(bench)
    words = {result.error_type for result in bench.kept.results if result.status == "failed"}
    promise(
        "C2",
        figure=(
            f"{OUTPUTS} wrong outputs: {counts['scored']} scored, {counts['failed']} failed with {len(words)} words, "
            f"{counts['skipped']} skipped, 0 with both"
        ),
    )
    outcomes = bench.pipeline.accounting.outcomes()
    assert outcomes["evaluated"] == sum(outcomes.values()) == OUTPUTS
    assert not bench.pipeline.accounting.failures
