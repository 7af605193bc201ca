"""Suites and `assert_evaluation` in a pytest file: tests that pass, and three that fail, to show
how that reads.

uv run python examples/13_suite_in_pytest.py    (a test file of your own: pytest)
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from agenteval_otel import EvaluationInput, Suite
from agenteval_otel.evaluators import CompletedWithin, Contains, CostWithin, ExactMatch, ToolUse

ORDERS = {"A-17": "Tuesday", "B-04": "Friday"}


def ask(question: str, *, tool: bool = True) -> EvaluationInput:
    """Stands in for your agent: its answer with the tool calls, the cost and the time that it took."""
    began = time.perf_counter()
    order = next((order for order in ORDERS if order in question), "A-17")
    day = ORDERS[order] if tool else "Monday"
    calls: list[dict[str, Any]] = (
        [{"name": "find_order", "arguments": {"order": order}}] if tool else []
    )
    return EvaluationInput(
        prompt=question,
        response=f"Order {order} is due on {day}.",
        tool_calls=calls,
        cost=0.002 if tool else 0.03,
        duration_s=time.perf_counter() - began,
    )


def tracking(order: str, day: str) -> Suite:
    return Suite(
        name=f"tracking of {order}",
        evaluators=[
            Contains(substrings=[order, day]),
            ToolUse(expectations=[{"name": "find_order", "arguments_contain": order}]),
            CostWithin(max_cost_usd=0.01),
            CompletedWithin(limit_s=2.0),
        ],
    )


@pytest.mark.parametrize(("order", "day"), ORDERS.items())
def test_orders_are_tracked(order: str, day: str) -> None:
    assert tracking(order, day).run_sync(ask(f"Where is {order}?"))


def test_without_the_tool() -> None:
    """Fails: `check` shows a line for each evaluator, whether it passed or not."""
    tracking("A-17", "Tuesday").run_sync(ask("Where is A-17?", tool=False)).check()


async def polite(evaluation_input: EvaluationInput) -> bool:
    raise ConnectionError("the judge is away")


def test_with_a_judge_that_is_away() -> None:
    """Fails: an evaluator that breaks has not scored zero, and what comes behind it does not run."""
    suite = Suite(
        name="manners", evaluators=[polite, ExactMatch(expected="Order A-17 is due on Tuesday.")]
    )
    assert suite.run_sync(ask("Where is A-17?"))


def test_the_words_of_an_answer(assert_evaluation: Callable[..., Any]) -> None:
    """Fails: the fixture of the plugin shows what was expected and what came; a table of the
    criteria ends the run.
    """
    assert_evaluation(
        ask("Where is B-04?"),
        evaluators=[Contains(substrings=["Friday", "by noon"]), CostWithin(max_cost_usd=0.01)],
    )


if __name__ == "__main__":
    # This repository's own options switch the plugin off: `-o addopts=` leaves them out.
    code = pytest.main([__file__, "-q", "-p", "no:cacheprovider", "-o", "addopts="])
    sys.exit(
        0
        if code == pytest.ExitCode.TESTS_FAILED
        else f"expected three tests to fail, found {code!r}"
    )
