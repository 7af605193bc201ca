"""Names from outside: the operator's have their place, others as long as there is room."""

from __future__ import annotations

from typing import Any

import pytest

from agenteval_otel.config.process import build
from agenteval_otel.config.settings import Settings
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.semconv import ENVIRONMENT, EVALUATED, OTHER, SERVICE_NAME
from agenteval_otel.telemetry import Accounting
from agenteval_otel.telemetry.names import MAX_NAMES, Names, NameTable


def test_the_operators_names_have_a_place_when_they_come_last() -> None:
    """Whatever came before; and no name loses the place that it has."""
    table = NameTable("agent")
    first = [name for number in range(50_000) if (name := table.admit(f"a{number}")) != OTHER]
    table.know(["clerk"])
    assert table.admit("clerk") == "clerk"
    assert first
    assert [table.admit(name) for name in first] == first
    assert table.turned_away == 50_000 - len(first)


def test_names_that_come_once_leave_half_of_the_places_to_names_that_come_often() -> None:
    """After any number of them a name that comes again and again gets a place, with many others
    between, but not as many as are remembered.
    """
    table = NameTable("agent")
    once = {table.admit(f"a{number}") for number in range(50_000)} - {OTHER}
    assert len(once) == table.places // 2
    shown = []
    for turn in range(60):
        shown.append(table.admit("patient"))
        for number in range(20):
            table.admit(f"b{turn}-{number}")
    assert (shown[0], shown[-1]) == (OTHER, "patient")
    seldom = set()
    for turn in range(60):
        seldom.add(table.admit("seldom"))
        for number in range(MAX_NAMES):
            table.admit(f"c{turn}-{number}")
    assert seldom == {OTHER}


def test_a_place_is_never_given_beyond_the_limit() -> None:
    """However often any number of names come."""
    table = NameTable("agent")
    for _ in range(100):
        for number in range(500):
            table.admit(f"a{number}")
    placed = {table.admit(f"a{number}") for number in range(500)} - {OTHER}
    assert len(placed) == table.places


def origin(number: int) -> tuple[tuple[str, str], ...]:
    return (SERVICE_NAME, f"s{number}"), (ENVIRONMENT, f"e{number % 7}")


def test_combinations_are_bounded_and_no_count_is_lost() -> None:
    """Agents times services times environments: few places, each answer counted once, and the
    operator's agents do not lose their services to those of others.
    """
    accounting = Accounting()
    accounting.names.agents.know(["clerk"])
    for number in range(20_000):
        accounting.outcome_counts(f"a{number % 300}", origin(number))[EVALUATED] += 1
        accounting.fast_counters(f"a{number % 300}", origin(number)).not_sampled += 1
    for number in range(3):
        accounting.outcome_counts("clerk", origin(number))[EVALUATED] += 1
    assert len(accounting.by_origin()) <= 400
    assert accounting.outcomes()["evaluated"] == 20_003
    assert accounting.outcomes()["not_sampled"] == 20_000
    assert {("clerk", origin(number)) for number in range(3)} <= set(accounting.by_origin())


def test_no_counter_falls_when_a_name_gets_its_place() -> None:
    """What it counted before stays under `_other`; what comes later counts under its name."""
    accounting = Accounting()
    for number in range(1_000):
        accounting.outcome_counts(f"a{number}")[EVALUATED] += 1
    before: dict[Any, int] = {}
    for turn in range(100):
        accounting.outcome_counts("patient")[EVALUATED] += 1
        now = {place: counts[EVALUATED] for place, counts in accounting.by_origin().items()}
        assert all(now[place] >= count for place, count in before.items())
        assert sum(now.values()) == 1_001 + turn
        before = now
    assert 0 < before["patient", ()] < 100


def test_an_overflow_is_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """With the kind and the number of places; other kinds are not touched."""
    table, names = NameTable("kind of this test", places=4), Names()
    for number in range(500):
        table.admit(f"a{number}")
        names.criteria.admit(f"c{number}")
    lines = [line for line in caplog.messages if "kind of this test" in line]
    assert len(lines) == 1
    assert "event='names_overflow'" in lines[0]
    assert "places=4" in lines[0]
    assert names.turned_away()["criterion"] > 400
    assert names.turned_away()["agent"] == 0


def test_what_settings_name_is_the_operators() -> None:
    """Agents, agents of routes, and criteria of evaluators, criteria sets, functions and people."""
    pipeline = build(
        Settings(
            agents={
                "clerk": {"functions": ["polite"], "criteria": [{"name": "tone"}]},
            },
            routes={"/chat": "desk"},
            functions=["brief"],
            criteria={"strict": [{"name": "exact"}]},
            judge_health={"feedback": {"stars": "Relevance"}},
            names={"max_series": 100},
        )
    )
    names = pipeline.accounting.names
    assert names.agents.places == names.criteria.places == 4
    for number in range(100):
        names.agents.admit(f"a{number}")
        names.criteria.admit(f"c{number}")
    assert [names.agents.admit(name) for name in ("clerk", "desk")] == ["clerk", "desk"]
    own = ["response_health", "polite", "tone", "brief", "exact", "stars", "user_feedback"]
    assert [names.criteria.admit(name) for name in own] == own
    assert names.agents.admit("a99") == OTHER
    pipeline.shutdown(1.0)


@pytest.mark.parametrize(
    ("wrong", "path"),
    [({"max_names": 1}, "names.max_names"), ({"max_series": 10**6}, "names.max_series"), ({"most": 1}, "names.most")],
)  # fmt: skip
def test_wrong_limits_are_refused(wrong: dict[str, int], path: str) -> None:
    """With the field's path."""
    with pytest.raises(ConfigurationError, match=path):
        Settings(names=wrong)
