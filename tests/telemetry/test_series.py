"""The budget of series: whatever comes from outside, a criterion of an agent, and with metric
dimensions the whole process, stays within it and loses no count."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.models import EvaluationResult
from agenteval_otel.semconv import (
    METRIC_RESULTS,
    METRIC_UNITS,
    METRIC_WEIGHT,
    METRIC_WEIGHTED_SCORE,
    OTHER,
)
from agenteval_otel.telemetry.metrics import SUMS, ResultTotals
from agenteval_otel.telemetry.names import MAX_SERIES

TENANT, VERSION = "agenteval.tag.tenant", "gen_ai.prompt.version"


def test_what_came_first_keeps_its_series() -> None:
    """Three models with verdicts have their own series, in the order in which they came; the others
    share one.

    Each criterion of each agent has a budget of its own.
    """
    totals = ResultTotals()

    def add(criterion: str, agent: str, model: str, label: str) -> str:
        facts: dict[str, Any] = {"criterion_name": criterion, "evaluator_type": "T", "score": 1.0}
        scores = (
            totals.add(EvaluationResult(**facts, label=label, passed=label == "pass"), agent, model)
            or {}
        )
        return scores["gen_ai.request.model"]

    for criterion, agent in (("one", "a"), ("two", "a"), ("one", "b")):
        models = [add(criterion, agent, f"m{index}", "pass") for index in range(5)]
        assert models == ["m0", "m1", "m2", "_other", "_other"]
        assert add(criterion, agent, "m1", "fail") == "m1"


def add(
    totals: ResultTotals,
    *,
    agent: str = "a",
    model: str | None = "m",
    label: str = "pass",
    **said: str,
) -> Any:
    """One scored result of a response that says so; gives the attributes of its score."""
    attributes = {
        {"tenant": TENANT, "version": VERSION}[name]: value for name, value in said.items()
    }
    facts: dict[str, Any] = {
        "criterion_name": "one",
        "evaluator_type": "T",
        "score": 1.0,
        "normalized": 1.0,
    }
    passed = label == "pass" if label in ("pass", "fail") else None
    # Preferred, and of one conversation: then there are all series.
    result = EvaluationResult(
        **facts, label=label, passed=passed, probability=0.5, least_probability=0.1
    )
    agent_shown, dimensions = totals.place_of(agent, attributes)
    return totals.add(result, agent_shown, model, dimensions, unit="c")


def test_dimensions_have_series_of_their_own_up_to_their_number_of_values() -> None:
    """The first values of each are kept, others share ``_other``; what is not annotated has no such
    attribute.
    """
    totals = ResultTotals()
    totals.dimensions = {TENANT: 2, VERSION: 1}
    said = [add(totals, tenant=f"t{index}", version="v1") for index in range(4)]
    assert [scores[TENANT] for scores in said] == ["t0", "t1", OTHER, OTHER]
    assert add(totals, version="v2")[VERSION] == OTHER
    assert TENANT not in add(totals, version="v1")
    assert not {TENANT, VERSION} & set(add(totals))
    totals.dimensions = {}  # settings are reloaded without them
    assert TENANT not in add(totals, tenant="t0")
    assert sum(totals.sums_of(METRIC_RESULTS).values()) == 8
    assert sum(totals.sums_of(METRIC_WEIGHT).values()) == 16.0


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32), st.tuples(*(st.integers(1, most) for most in (4, 20, 20, 200, 200))))
def test_the_process_stays_within_its_series(seed: int, most: tuple[int, ...]) -> None:
    """Whatever agents, models, labels and values of dimensions come in whatever order: at most
    2,000 series.

    No count is lost, each agent keeps its own, and a forked child begins with all of its room.
    """
    numbers, scores = random.Random(seed), set()
    totals = ResultTotals()
    totals.names.agents.know(f"a{number}" for number in range(4))
    totals.names.criteria.know(["one"])
    totals.dimensions = {TENANT: 200, VERSION: 200}
    for _ in range(1_000):
        agent, model, label, tenant, version = map(numbers.randrange, most)
        said = add(
            totals,
            agent=f"a{agent}",
            model=f"m{min(model, 8)}",
            label=("pass", "fail", f"l{label}")[min(label, 2)],
            tenant=f"t{tenant}",
            version=f"v{version}",
        )
        scores.add(tuple(said.items()))
    results = totals.sums_of(METRIC_RESULTS)
    assert sum(results.values()) == 1_000
    assert {dict(key)["gen_ai.agent.name"] for key in results} == {
        f"a{agent}" for agent in range(most[0])
    }
    series = len(scores) + sum(len(totals.sums_of(metric)) for metric in SUMS)
    assert series <= MAX_SERIES
    shared = any(dict(key)[TENANT] == OTHER for key in results)
    # Room is kept for the six sums over units of what has one result so far.
    of_one = totals.sums_of(METRIC_WEIGHTED_SCORE).keys() - totals.sums_of(METRIC_UNITS).keys()
    assert not shared or series + 6 * len(of_one) > MAX_SERIES * 3 // 4, "the room is used"
    totals.reset()
    assert add(totals, tenant="new", version="new")[TENANT] == "new"
