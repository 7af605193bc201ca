"""Judges in the telemetry: what they were asked, what that took, what is left, through the real
client.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from agenteval_otel import monitor, semconv
from agenteval_otel.evaluators import CriterionEvaluator, LLMJudge
from agenteval_otel.evaluators.judges.base import Guarded
from agenteval_otel.judges import AnthropicJudge, JudgeUsage
from agenteval_otel.models import EvaluationInput, Score
from agenteval_otel.models.judge_calls import JudgeCall
from agenteval_otel.telemetry.metrics import JudgeCounters, ResultTotals
from agenteval_otel.testing import ModelReply, ModelServer, RecordedTelemetry, ScriptedJudge
from tests.telemetry.support import Watch, points, trace_of

GOOD = json.dumps({"evidence": ["x"], "reason": "r", "score": True})
KEY = "sk-canary-71c0ffee42"


def judge(server: ModelServer, **settings: Any) -> AnthropicJudge:
    values = {"model": "m-1", "base_url": server.url, "api_key": KEY, "max_retries": 0, **settings}
    return AnthropicJudge.load(values)


def of_judge(attributes: Any) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if ".judge." in name}


def test_what_judges_use_is_measured(watch: Watch) -> None:
    """Calls, cached verdicts, tokens, cost, time, breaker, budget: after two answers, a repeated
    one and a failure.
    """
    replies = [ModelReply(text=GOOD, input_tokens=100, output_tokens=20, cache_read_tokens=50)] * 2
    with ModelServer([*replies, ModelReply(status=529)]) as server:
        spend = {
            "prices": {"m-*": {"input": 1, "output": 5, "cache_read": 0.1}},
            "usd_per_day": 1,
            "account": "t1",
        }
        asks = LLMJudge(criterion_name="ok", judge=judge(server, spend=spend, cache={}))
        hosts = [watch.answer(asks, answer=answer) for answer in ("one", "one", "two", "three")]
    read = watch.telemetry
    # first: a look takes the exemplars away
    (point, failed) = read.points(semconv.METRIC_JUDGE_DURATION.name)
    assert (point.count, failed.count, failed.attributes["error.type"]) == (2, 1, "overloaded")
    assert point.explicit_bounds == semconv.METRIC_DURATION.boundaries
    assert {(exemplar.trace_id, exemplar.span_id) for exemplar in point.exemplars} <= {
        trace_of(host) for host in hosts
    }
    assert point.exemplars
    assert points(read, semconv.METRIC_JUDGE_CALLS.name) == {
        ("m-1", "answered"): 2,
        ("m-1", "cached"): 1,
        ("m-1", "overloaded"): 1,
    }
    assert points(read, semconv.METRIC_JUDGE_TOKENS.name) == {
        ("m-1", "input"): 200,
        ("m-1", "output"): 40,
        ("m-1", "cache_read"): 100,
    }
    cost = 200e-6 + 200e-6 + 10e-6
    assert points(read, semconv.METRIC_JUDGE_COST.name) == {("m-1",): pytest.approx(cost)}
    assert points(read, semconv.METRIC_JUDGE_BREAKER.name) == {("anthropic:m-1",): 0}
    assert points(read, semconv.METRIC_JUDGE_BUDGET.name) == {("day",): pytest.approx(1.0 - cost)}


def test_what_guards_refuse_is_counted(watch: Watch) -> None:
    """Breaker and budget have values from the start; then questions that were not asked count by
    why.
    """
    with ModelServer([ModelReply(status=503)]) as server:
        spend = {
            "prices": {"m-1": {"input": 1, "output": 5}},
            "usd_per_minute": 0.25,
            "account": "t2",
        }
        asks = LLMJudge(
            criterion_name="ok", judge=judge(server, spend=spend), needs=("ground_truth",)
        )
        watch.answer(asks)
        assert points(watch.telemetry, semconv.METRIC_JUDGE_BREAKER.name) == {("anthropic:m-1",): 0}
        assert points(watch.telemetry, semconv.METRIC_JUDGE_BUDGET.name) == {("minute",): 0.25}
        assert points(watch.telemetry, semconv.METRIC_JUDGE_CALLS.name) == {}
        broken = judge(server, model="m-2", breaker={"failures": 1})
        short = judge(server, model="m-3", spend={"tokens_per_day": 1, "account": "t3"})
        for _ in range(2):
            watch.answer(
                LLMJudge(criterion_name="a", judge=broken),
                LLMJudge(criterion_name="b", judge=short),
            )
    assert points(watch.telemetry, semconv.METRIC_JUDGE_CALLS.name) == {
        ("m-2", "server_error"): 1,
        ("m-2", "breaker_open"): 1,
        ("m-3", "budget_exhausted"): 2,
    }
    states = points(watch.telemetry, semconv.METRIC_JUDGE_BREAKER.name)
    assert (states["anthropic:m-2",], states["anthropic:m-3",]) == (2, 0)
    assert [
        point.count for point in watch.telemetry.points(semconv.METRIC_JUDGE_DURATION.name)
    ] == [1]


class AsksAJudge(CriterionEvaluator):
    """An evaluator of somebody's own, which holds its judge where no setting says so."""

    criterion_name: str = "own"

    async def score(self, evaluation_input: EvaluationInput) -> Score:
        from tests.judges.doubles import request_of

        verdict = await HELD.guarded().judge(request_of())
        return Score(value=bool(verdict.answer["score"]))


HELD = ScriptedJudge(model="held", fallback={"score": 1}, input_tokens=7, output_tokens=3)


def test_judges_of_other_evaluators_count_too(telemetry: RecordedTelemetry) -> None:
    """Whoever asks a guarded judge within an evaluation is counted, each pipeline counts its own
    answers.
    """
    other = RecordedTelemetry()
    for times, recorded in ((1, telemetry), (3, other)):
        watch = Watch(recorded)
        for _ in range(times):
            watch.answer(AsksAJudge())
        used = {("held", "input"): 7 * times, ("held", "output"): 3 * times}
        assert points(recorded, semconv.METRIC_JUDGE_TOKENS.name) == used
        watch.shutdown()
    other.shutdown()


def test_a_result_says_who_judged_and_what_that_took(watch: Watch) -> None:
    """Event and span of the first of the criteria have all that the call took; the others' who
    judged; none the key.
    """
    messages = {"evidence": [], "reason": "r", "score": True}
    with ModelServer(
        [
            ModelReply(
                text=json.dumps({"a": messages, "b": messages}), input_tokens=9, output_tokens=4
            )
        ]
    ) as server:
        asks = LLMJudge(
            rubrics=(
                {"criterion_name": "a", "scale": "binary"},
                {"criterion_name": "b", "scale": "binary"},
            ),
            judge=judge(server, spend={"prices": {"m-1": {"input": 1, "output": 5}}}),
        )
        watch.answer(asks)
    first, second = (of_judge(event.attributes) for event in watch.telemetry.events())
    who = {
        "agenteval.judge.model": "m-1",
        "agenteval.judge.response.id": first["agenteval.judge.response.id"],
    }
    assert first == {
        **who,
        "agenteval.judge.usage.input_tokens": 9,
        "agenteval.judge.usage.output_tokens": 4,
        "agenteval.judge.cost": pytest.approx(29e-6),
    }
    assert second == who
    spans = [
        span
        for span in watch.telemetry.spans("evaluation ")
        if span.name in ("evaluation a", "evaluation b")
    ]
    assert [of_judge(span.attributes or {}) for span in spans] == [first, second]
    assert KEY not in str([span.to_json() for span in watch.telemetry.spans()])


def test_a_call_that_fails_shows_its_cost(watch: Watch) -> None:
    """A malformed or refused reply is billed: its tokens and their price stand on the result and
    the event.
    """
    replies = [
        ModelReply(text="no JSON", input_tokens=9, output_tokens=4),
        ModelReply(text=GOOD, finish_reason="content_filter", input_tokens=9, output_tokens=4),
    ]
    with ModelServer(replies) as server:
        asks = LLMJudge(
            "Is it fine?", judge=judge(server, spend={"prices": {"m-1": {"input": 1, "output": 5}}})
        )
        for answer in ("one", "two"):
            watch.answer(asks, answer=answer)
    events = [event.attributes for event in watch.telemetry.events()]
    assert [event["error.type"] for event in events] == ["malformed_answer", "refusal"]
    assert [event["agenteval.judge.cost"] for event in events] == [pytest.approx(29e-6)] * 2
    assert points(watch.telemetry, semconv.METRIC_JUDGE_COST.name) == {
        ("m-1",): pytest.approx(58e-6)
    }


def test_words_from_outside_make_no_series_without_end() -> None:
    """Of models and outcomes a bounded number has series of its own; what an endpoint makes up
    counts nothing down.
    """
    totals = JudgeCounters(ResultTotals().bounded)
    usage = JudgeUsage(input_tokens=-5, output_tokens=2)
    for number in range(100):
        guarded = Guarded(ScriptedJudge(model=f"m{number}"))
        totals.add(JudgeCall(guarded, "p", f"Odd{number}", True, usage, float("nan")))
    assert (
        len({dict(labels)[semconv.JUDGE_MODEL] for labels in totals.calls})
        == semconv.MAX_MODELS + 1
    )
    assert (
        len({dict(labels)[semconv.OUTCOME] for labels in totals.calls})
        == semconv.MAX_JUDGE_OUTCOMES + 1
    )
    assert sum(totals.calls.values()) == 100
    assert totals.cost == {}
    assert {
        amount
        for labels, amount in totals.tokens.items()
        if ("agenteval.token.type", "input") in labels
    } == {0}


def test_a_missing_key_is_told_at_the_start(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """When the handler is decorated one line names the variable and the setting; nothing raises,
    the others go on.
    """
    monkeypatch.delenv("A_KEY_THAT_IS_NOT_THERE", raising=False)
    asks = LLMJudge(
        criterion_name="ok", judge=AnthropicJudge(model="m", api_key_env="A_KEY_THAT_IS_NOT_THERE")
    )
    pipeline = watch.pipeline([asks, AsksAJudge()])
    handler = monitor(agent="missing-key", pipeline=pipeline)(str.upper)
    (line,) = [
        record.getMessage()
        for record in caplog.records
        if "model_cannot_be_asked" in record.getMessage()
    ]
    assert "A_KEY_THAT_IS_NOT_THERE" in line
    assert "evaluators[0].judge" in line
    watch.call(handler)
    words = {
        event.attributes[semconv.EVALUATION_NAME]: event.attributes.get("error.type")
        for event in watch.telemetry.events()
    }
    assert words == {"ok": "authentication", "own": None}
