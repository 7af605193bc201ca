"""Spans of other libraries: what became of them is counted, in few series whatever their scopes are
called.
"""

from __future__ import annotations

import pytest

from agenteval_otel import monitor
from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.semconv import MAX_SCOPE_CHARS, MAX_SCOPES, METRIC_SPANS, OTHER, SPANS_LOST
from agenteval_otel.telemetry import Accounting
from agenteval_otel.testing import RecordedTelemetry


def test_scopes_from_outside_are_bounded() -> None:
    """In number and in length; what has no count of its own counts with the others."""
    accounting = Accounting()
    for number in range(100):
        accounting.count_spans("not_understood", 2, f"{number} " + "x" * 1_000)
    accounting.count_spans("not_understood", 1, "")
    assert len(accounting.not_understood) == MAX_SCOPES + 1
    assert max(map(len, accounting.not_understood)) <= MAX_SCOPE_CHARS
    assert accounting.not_understood[OTHER] == 2 * (100 - MAX_SCOPES) + 1
    assert accounting.spans()["not_understood"] == 201


@pytest.mark.parametrize("outcome", SPANS_LOST)
def test_spans_that_are_lost_are_failures_too(outcome: str) -> None:
    """One count, seen among the failures and among the spans."""
    accounting = Accounting()
    assert accounting.spans() == {}
    accounting.count_spans(outcome, 3)
    assert accounting.failures == {f"spans:{outcome}": 3}
    assert {name: count for name, count in accounting.spans().items() if count} == {outcome: 3}
    accounting.reset()
    assert accounting.spans() == {}


def test_the_metric_shows_every_outcome(pipeline: Pipeline, telemetry: RecordedTelemetry) -> None:
    """From the first span on, each from 0; before it there is no series."""
    monitor(pipeline=pipeline)(str.upper)("q")
    assert telemetry.points(METRIC_SPANS.name) == []
    accounting = pipeline.accounting
    accounting.count_spans("read", 5)
    accounting.count_spans("not_understood", 1, "acme.agents")
    values = {
        tuple(point.attributes.values()): point.value
        for point in telemetry.points(METRIC_SPANS.name)
    }
    assert values[("read",)] == 5
    assert values["not_understood", "acme.agents"] == 1
    assert all(values[(outcome,)] == 0 for outcome in SPANS_LOST)
