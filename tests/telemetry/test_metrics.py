"""Metrics: names, units, boundaries, exemplars, weights, and a bounded number of series."""

from __future__ import annotations

import time
from functools import partial

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from agenteval_otel import monitor, semconv
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.models import Score
from agenteval_otel.storage import OtlpStorageProvider
from tests.telemetry.support import Watch, collected, fail, points, trace_of
from tests.testing.doubles import Free, Thinking

SPECIFIED = {
    "gen_ai.evaluation.score": "1", "agenteval.evaluation.results": "{result}", "agenteval.evaluation.weight": "1",
    "agenteval.evaluation.weight_squared": "1", "agenteval.evaluation.weighted_score": "1",
    "agenteval.evaluation.weighted_score_w2": "1", "agenteval.evaluation.weighted_score_squared_w2": "1",
    "agenteval.evaluation.errors": "{error}", "agenteval.evaluation.duration": "s", "agenteval.evaluation.lag": "s",
    "agenteval.responses": "{response}", "agenteval.answers": "{response}", "agenteval.last_success": "s",
    # agenteval.host.loop_lag comes with a host's event loop:
    # tests/promises/test_d3_self_metrics.py.
    "agenteval.sampling.level": "{level}",
    "agenteval.export.lost": "{item}",
    "agenteval.export.signals": "{signal}",
    "agenteval.names.overflow": "{lookup}",
}  # fmt: skip


BOUNDARIES = {
    "gen_ai.evaluation.score": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0),
    "agenteval.evaluation.duration": (0.01, 0.04, 0.16, 0.64, 2.56, 10.24, 40.96),
    "agenteval.evaluation.lag": (0.1, 0.4, 1.6, 6.4, 25.6, 102.4),
}


def test_names_and_units_are_the_specified_ones(watch: Watch) -> None:
    """Every specified metric is there with its unit and boundaries, and no other; no name has a
    unit or ``_total``.
    """
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    watch.emitter = OtlpStorageProvider(meter_provider=meters, signals=frozenset({"metrics"}))
    watch.answer(
        Thinking(), Free(criterion_name="a", threshold=0.1), Free(criterion_name="bad", action=fail)
    )
    result = collected(reader)
    # of models and of the whole run
    durations = result["agenteval.evaluation.duration"].data.data_points
    assert {point.attributes.get("gen_ai.evaluation.name") for point in durations} == {
        "thinking",
        None,
    }
    (lag,) = result["agenteval.evaluation.lag"].data.data_points
    assert (lag.count, dict(lag.attributes)) == (1, {"gen_ai.agent.name": "support"})
    for name, boundaries in BOUNDARIES.items():
        assert {point.explicit_bounds for point in result[name].data.data_points} == {boundaries}
    assert {
        name: metric.unit
        for name, metric in result.items()
        if not name.startswith("agenteval.queue")
    } == SPECIFIED
    assert {name for name in result if name.startswith("agenteval.queue")} == {
        "agenteval.queue.size",
        "agenteval.queue.max_bytes",
        "agenteval.queue.bytes",
        "agenteval.queue.drain_time",
    }
    units = {item.name: item.unit for item in semconv.INSTRUMENTS}
    for name, metric in result.items():
        assert metric.unit == units[name]
        assert metric.description
        assert not name.endswith(("_total", "_seconds", ".seconds"))


def test_the_score_is_normalized_and_has_an_exemplar(watch: Watch) -> None:
    """The histogram holds the normalized score by criterion, agent and model, and names the trace
    it came from.
    """
    host = watch.answer(Free(criterion_name="tone", value=4, scale="likert5"), facts={"model": "m"})
    (point,) = watch.telemetry.points("gen_ai.evaluation.score")
    assert dict(point.attributes) == {
        "gen_ai.evaluation.name": "tone",
        "gen_ai.agent.name": "support",
        "gen_ai.request.model": "m",
    }
    assert (point.count, point.sum) == (1, 0.75)
    (exemplar,) = point.exemplars
    assert (exemplar.trace_id, exemplar.span_id) == trace_of(host)
    assert exemplar.value == 0.75


def test_errors_are_counted_by_their_word(watch: Watch) -> None:
    """A failed evaluator counts as an error of its criterion, and as no result; like a category it
    has no score.
    """
    watch.answer(Free(action=fail), Free(criterion_name="kind", value="warm", scale="words"))
    assert points(watch.telemetry, "agenteval.evaluation.errors") == {("rate_limited", "fixed"): 1}
    assert points(watch.telemetry, "agenteval.evaluation.results") == {
        ("support", "kind", "warm"): 1
    }
    assert watch.telemetry.points("gen_ai.evaluation.score") == []


def test_weights_are_the_inverse_of_the_probability(watch: Watch) -> None:
    """With probability 0.5 every response counts twice: the sums of w, w squared and w times score."""
    made = watch.pipeline([Free(criterion_name="half", value=0.25, threshold=0.1)], ratio=0.5)
    handler = monitor(agent="support", pipeline=made)(str.upper)
    for _ in range(60):
        watch.call(handler)
    taken = made.accounting.outcomes()["evaluated"]
    assert 0 < taken < 60
    passed, failed, of_agent = (
        ("support", "half", "pass"),
        ("support", "half", "fail"),
        {("support", "half")},
    )
    for name, keys, each in [
        ("weight", {passed, failed}, 2.0),
        ("weight_squared", {passed, failed}, 4.0),
        ("weighted_score", of_agent, 0.5),
        ("weighted_score_w2", of_agent, 1.0),
        ("weighted_score_squared_w2", of_agent, 0.25),
    ]:
        actual = points(watch.telemetry, f"agenteval.evaluation.{name}")
        assert actual.keys() == keys
        assert sum(actual.values()) == pytest.approx(each * taken)


def test_sums_by_conversation_have_series_once_a_turn_has_come_again(watch: Watch) -> None:
    """Lone answers need none: their sums are those of answers. From then on all are in them."""
    made = watch.pipeline([Free(criterion_name="half", value=0.25, threshold=0.5)])

    @monitor(agent="support", pipeline=made)
    def answer(prompt: str, conversation_id: str | None = None) -> str:
        return prompt

    def sums(name: str) -> list[float]:
        return list(points(watch.telemetry, f"agenteval.evaluation.{name}").values())

    for conversation in ("a", "b"):
        watch.call(partial(answer, conversation_id=conversation))
    assert sums("units") == []
    watch.call(partial(answer, conversation_id="a"))
    assert [sums(name) for name in ("units", "unit_weight_squared")] == [[2], [4 + 1]]
    assert [sums(name) for name in ("unit_failed", "unit_failed_squared")] == [[4 + 1]] * 2
    assert sums("unit_score") == [0.5 * 2 + 0.25]
    assert sums("unit_score_squared") == [0.5**2 + 0.25**2]
    watch.call(answer, traced=False)
    assert [sums(name) for name in ("units", "unit_weight_squared")] == [[3], [4 + 1 + 1]]
    assert sums("unit_score") == [0.5 * 2 + 0.25 + 0.25]


def test_both_verdicts_begin_at_zero_and_a_category_stands_alone(watch: Watch) -> None:
    """The first failure after many passes is an increase, of its weight too; a category or a number
    has no verdicts.
    """
    calm = Free(criterion_name="sorted", action=lambda _: Score(value=1.0, label="calm"))
    watch.answer(ResponseHealth(), calm, Free(criterion_name="plain"))
    for name in ("results", "weight", "weight_squared"):
        assert points(watch.telemetry, f"agenteval.evaluation.{name}") == {
            ("support", "response_health", "pass"): 1,
            ("support", "response_health", "fail"): 0,
            ("support", "sorted", "calm"): 1,
            ("support", "plain"): 1,
        }


def test_responses_by_outcome_and_the_queue(watch: Watch) -> None:
    """Calls are counted by agent and outcome, every outcome named; the queue shows its state;
    success its time.
    """
    watch.answer(ResponseHealth())
    actual = points(watch.telemetry, "agenteval.responses")
    assert {outcome for outcome, _ in actual} == set(semconv.OUTCOMES)
    assert actual["evaluated", "support"] == 1
    assert sum(actual.values()) == 1
    for name in ("size", "bytes", "max_bytes"):
        assert points(watch.telemetry, f"agenteval.queue.{name}") == {(): 0}
    (moment,) = points(watch.telemetry, "agenteval.last_success").values()
    assert abs(moment - time.time()) < 60


def test_no_id_becomes_a_metric_attribute(watch: Watch) -> None:
    """Ids of conversations and responses, explanations and error messages are never attributes of a
    metric.
    """
    facts = {
        "conversation_id": "conversation-7",
        "response_id": "response-7",
        "session_id": "session-7",
    }
    watch.answer(
        Free(reasoning="reason-7"), Free(criterion_name="bad", action=fail), Thinking(), facts=facts
    )
    assert "-7" not in repr([watch.telemetry.points(name) for name in watch.telemetry.metrics()])
