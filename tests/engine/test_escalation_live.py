"""Escalation through `@monitor`: which answers the judge saw, and what is emitted and counted of
all of them.
"""

from __future__ import annotations

import asyncio
import gc
import math
import random
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator

from agenteval_otel import accounting, annotate, configure, flush, monitor
from agenteval_otel.config import default_pipeline
from agenteval_otel.engine.pipeline import InlineDispatcher, PoolDispatcher
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import LLMJudge, ResponseHealth
from agenteval_otel.models import EvaluationInput, Score
from agenteval_otel.sampling import Escalation, FunctionSampler, ResultSampler
from agenteval_otel.sampling.base import RANDOMNESS_RANGE
from agenteval_otel.sampling.escalation import second_randomness
from agenteval_otel.sampling.key import SamplingKey
from agenteval_otel.testing import RecordedTelemetry, ScriptedJudge
from tests.testing.doubles import Free, Keeping, Thinking


@pytest.fixture(autouse=True)
def _no_handler_is_left() -> Iterator[None]:
    """Handlers follow the settings for as long as they live: those of another test would refuse
    this one's.
    """
    yield
    gc.collect()


CALLS, FLOOR = 400, 0.1
SECRET = "the key of these tests"
KEY = SamplingKey(SECRET.encode())
REFUSAL = "I'm sorry, but I cannot help with that request."
RULES: dict[str, Any] = {
    "baseline_rate": FLOOR,
    "rules": [{"type": "result", "labels": ["fail"], "criteria": ["response_health"]}],
}


class Numbered(IdGenerator):
    """Trace ids that are always the same."""

    def __init__(self) -> None:
        self._numbers = random.Random(7)

    def generate_trace_id(self) -> int:
        return self._numbers.getrandbits(128) or 1

    def generate_span_id(self) -> int:
        return self._numbers.getrandbits(64) or 1


def good_judge(judge: ScriptedJudge) -> LLMJudge:
    return LLMJudge(judge=judge, criterion_name="good", description="whether the answer is good")


def approving() -> ScriptedJudge:
    return ScriptedJudge(fallback={"evidence": [], "reason": "fine", "score": True})


def answered(
    telemetry: RecordedTelemetry, escalation: Any, *, sample_rate: float = 1.0, **settings: Any
) -> list[int]:
    """Answer `CALLS` questions, every tenth with a refusal, each in a trace of its own; gives the
    traces' ids.
    """
    judge = approving()
    settings = {"evaluators": [good_judge(judge), ResponseHealth()], **settings}
    configure(
        storage=[telemetry.storage()],
        dispatcher=InlineDispatcher(),
        sample_rate=sample_rate,
        escalation=escalation,
        sampling={"trust": ["trace_id"], "key": SECRET},
        **settings,
    )

    @monitor(agent="support")
    def answer(number: int) -> str:
        return REFUSAL if number % 10 == 0 else f"The answer to question {number}."

    tracer, ids = TracerProvider(id_generator=Numbered()).get_tracer("host"), []
    for number in range(CALLS):
        with tracer.start_as_current_span("request") as span:
            ids.append(span.get_span_context().trace_id)
            answer(number)
    return ids


def sampled_of(attributes: Any) -> tuple[float, str]:
    return attributes["agenteval.sampling.probability"], attributes["agenteval.sampling.reason"]


def judged(telemetry: RecordedTelemetry) -> dict[int, tuple[float, str]]:
    return {
        event.trace_id: sampled_of(event.attributes)
        for event in telemetry.events()
        if event.attributes["gen_ai.evaluation.name"] == "good"
    }


def expected(ids: list[int]) -> dict[int, tuple[float, str]]:
    """What an escalation by `RULES` must have the judge see, worked out by hand."""
    floor = {
        identifier
        for identifier in ids
        if second_randomness(identifier & (RANDOMNESS_RANGE - 1), KEY)
        < round(FLOOR * RANDOMNESS_RANGE)
    }
    return {
        identifier: (FLOOR, "baseline") if number % 10 else (1.0, "result")
        for number, identifier in enumerate(ids)
        if not number % 10 or identifier in floor
    }


def test_the_judge_sees_what_the_rules_and_the_baseline_choose(
    telemetry: RecordedTelemetry,
) -> None:
    """Every refusal, and of the rest those whose salted randomness lies below the baseline; all of
    it is recorded.
    """
    judge = approving()
    wanted = expected(answered(telemetry, RULES, evaluators=[good_judge(judge), ResponseHealth()]))
    assert judged(telemetry) == wanted
    assert judge.calls == len(wanted)
    outcomes = accounting()
    assert (outcomes["evaluated"], sum(outcomes.values())) == (CALLS, CALLS)
    scored = CALLS + judge.calls
    assert default_pipeline().accounting.results == {
        "scored": scored,
        "skipped": 2 * CALLS - scored,
        "failed": 0,
    }
    result_spans = [sampled_of(span.attributes) for span in telemetry.spans("evaluation good")]
    assert (len(result_spans), set(result_spans)) == (
        len(wanted),
        {(FLOOR, "baseline"), (1.0, "result")},
    )
    runs = telemetry.spans("evaluation support")
    assert {sampled_of(span.attributes) for span in runs} == {(1.0, "ratio")}
    for span in runs:
        is_judged = span.parent is not None and span.parent.trace_id in wanted
        assert ("gen_ai.evaluation.good.score" in (span.attributes or {})) == is_judged
    weights = sum(1 / probability for probability, _ in wanted.values())
    for metric, total in (
        ("weight", weights),
        ("weighted_score", weights),
        ("weight_squared", sum(1 / item**2 for item, _ in wanted.values())),
        ("preferred", sum(reason == "result" for _, reason in wanted.values())),
    ):
        actual = {
            point.attributes["gen_ai.evaluation.name"]: point.value
            for point in telemetry.points(f"agenteval.evaluation.{metric}")
            if point.value
        }
        assert actual["good"] == pytest.approx(total)
    assert abs(weights - CALLS) <= 3 * math.sqrt(0.9 * CALLS * (1 - FLOOR) / FLOOR), (
        "they stand for all the answers"
    )


def test_the_same_traces_in_every_process(telemetry: RecordedTelemetry) -> None:
    """The decision belongs to the trace: another pipeline, with another sample rate, escalates the
    same ones.
    """
    ids = answered(telemetry, RULES)
    first = judged(telemetry)
    again = RecordedTelemetry()
    assert answered(again, RULES, sample_rate=0.5) == ids
    sampled = {event.trace_id for event in again.events()}
    assert judged(again) == {
        item: (probability / 2, reason)
        for item, (probability, reason) in first.items()
        if item in sampled
    }
    assert 0.4 * CALLS < len(sampled) < 0.6 * CALLS
    again.shutdown()


def test_without_a_baseline_no_probability_is_claimed(telemetry: RecordedTelemetry) -> None:
    """Nothing is known of what no rule matches: results have no weight. A rule that raises is
    counted each time.
    """

    def explode(_: EvaluationInput) -> bool:
        raise RuntimeError

    answered(
        telemetry,
        {"baseline_rate": 0, "rules": [*RULES["rules"], FunctionSampler(function=explode)]},
    )
    assert default_pipeline().accounting.failures == {"escalation:function": CALLS}
    events = [
        event
        for event in telemetry.events()
        if event.attributes["gen_ai.evaluation.name"] == "good"
    ]
    assert len(events) == CALLS / 10
    assert not any("agenteval.sampling.probability" in event.attributes for event in events)
    assert {event.attributes["agenteval.sampling.reason"] for event in events} == {"result"}
    weighed = [
        point.attributes["gen_ai.evaluation.name"]
        for point in telemetry.points("agenteval.evaluation.weight")
    ]
    assert set(weighed) == {"response_health"}


def handler(number: int = 0) -> str:
    return "An answer."


def seen_by(kept: Keeping) -> list[str | None]:
    (aggregated,) = kept.saved
    kept.saved.clear()
    return [result.skip_reason for result in aggregated.results]


def test_settings_agents_and_decorators() -> None:
    """The decorator's escalation counts before the agent's entry, that before the settings'; false
    is none.
    """
    kept = Keeping()
    rare, surely = {"baseline_rate": 1e-9}, {"baseline_rate": 1.0}
    configure(
        storage=[kept],
        dispatcher=InlineDispatcher(),
        sample_rate=1.0,
        evaluators=[Free(), Thinking()],
        escalation=rare,
        agents={"all": {"escalation": False}, "sure": {"escalation": surely}, "heir": {}},
    )
    for agent, arguments, expected_skip in (
        ("other", {}, "not_escalated"),
        ("heir", {}, "not_escalated"),
        ("all", {}, None),
        ("sure", {}, None),
        ("other", {"escalation": False}, None),
        ("sure", {"escalation": rare}, "not_escalated"),
        ("other", {"escalation": Escalation(baseline_rate=1.0)}, None),
        ("other", {"evaluators": [Thinking()], "escalation": surely}, None),
    ):
        monitor(agent=agent, **arguments)(handler)()
        assert seen_by(kept)[-1] == expected_skip, (agent, arguments)


@pytest.mark.parametrize(
    ("escalation", "evaluators", "path", "message"),
    [
        ({"baseline_rate": 7}, None, "escalation.baseline_rate", "expected at most 1"),
        (0.1, None, "escalation", "expected a mapping, or false for none, found float"),
        ({"baseline_rate": 0.1}, [ResponseHealth()], "escalation", "no evaluator asks a model"),
        (
            {"rules": [ResultSampler(failed=True, criteria=["x"])]},
            [Free(), Thinking()],
            "escalation.rules[0].criteria[0]",
            "no evaluator scores 'x': rules look at the first stage. Known: fixed",
        ),
        (
            {"rules": [ResultSampler(failed=True, criteria=["thinking"])]},
            [Free(), Thinking()],
            "escalation.rules[0].criteria[0]",
            "'thinking' is scored in the second stage: rules look at the first stage",
        ),
        (
            {"rules": [{"type": "slow"}]},
            None,
            "escalation.rules[0].above_s",
            "required field is missing",
        ),
    ],
)
def test_a_decorators_escalation_is_checked_at_decoration(
    escalation: Any, evaluators: Any, path: str, message: str
) -> None:
    """By its place, with the choices."""
    with pytest.raises(ConfigurationError) as caught:
        monitor(escalation=escalation, evaluators=evaluators)(handler)
    assert caught.value.path == path
    assert message in str(caught.value)


def test_a_decorators_escalation_is_checked_against_inherited_evaluators() -> None:
    """Before or after them: settings that do not fit it are refused, and nothing changes."""
    rule = ResultSampler(criteria=["fixed"], failed=True)
    early = monitor(agent="a", escalation=Escalation(baseline_rate=1e-9, rules=[rule]))(handler)
    assert early() == "An answer."
    with pytest.raises(ConfigurationError, match="no evaluator scores 'fixed'"):
        configure(
            storage=[], dispatcher=InlineDispatcher(), evaluators=[ResponseHealth(), Thinking()]
        )
    kept = Keeping()
    configure(storage=[kept], dispatcher=InlineDispatcher(), evaluators=[Free(), Thinking()])
    early()
    assert seen_by(kept) == [None, "not_escalated"]
    with pytest.raises(ConfigurationError, match="no evaluator asks a model"):
        configure(storage=[], dispatcher=InlineDispatcher(), evaluators=[Free()])
    with pytest.raises(ConfigurationError, match="no evaluator scores 'x'"):
        monitor(agent="b", escalation={"rules": [ResultSampler(criteria=["x"], failed=True)]})(
            handler
        )()
    early()
    assert seen_by(kept) == [None, "not_escalated"]


def test_an_answer_is_judged_by_the_rules_that_it_came_under() -> None:
    """The settings change while its first stage runs: it ends by the old ones, the next one goes by
    the new.
    """
    kept, entered, leave = Keeping(), threading.Event(), threading.Event()

    async def first(_: EvaluationInput) -> Score:
        entered.set()
        await asyncio.to_thread(leave.wait, 20)
        return Score(value=0.1)

    small, large = Thinking(criterion_name="small", action=first), Thinking(criterion_name="large")
    on: dict[str, Any] = {
        "rules": [{"type": "result", "criteria": ["small"], "below": 0.5}],
        "criteria": ["large"],
    }
    watched = monitor(agent="a")(handler)
    parts: dict[str, Any] = {"storage": [kept], "sample_rate": 1.0, "evaluators": [small, large]}
    configure(
        **parts, escalation={**on, "baseline_rate": 1e-9}, dispatcher=PoolDispatcher(linger_s=0.0)
    )
    watched()
    assert entered.wait(20)
    rare = {"baseline_rate": 1e-9, "criteria": ["large"]}
    configure(**parts, escalation=rare, dispatcher=PoolDispatcher(linger_s=0.0))
    watched()
    leave.set()
    assert flush(20.0)
    assert sorted(aggregated.results[1].sampling_reason or "" for aggregated in kept.saved) == [
        "baseline",
        "result",
    ]
    assert Counter(aggregated.results[1].skip_reason for aggregated in kept.saved) == {
        None: 1,
        "not_escalated": 1,
    }


def test_the_baseline_takes_whole_conversations() -> None:
    """Where conversations are sampled, their randomness decides: all turns are escalated, or none."""
    kept = Keeping()
    configure(
        storage=[kept],
        dispatcher=InlineDispatcher(),
        sampler={"type": "conversation"},
        escalation={"baseline_rate": 0.5},
        evaluators=[Free(), Thinking()],
    )

    @monitor(agent="chat")
    def chat(number: int) -> str:
        annotate(conversation_id=f"c-{number // 4}")
        return "An answer."

    for number in range(80):
        chat(number)
    turns = Counter(
        item.conversation_id for item in kept.saved if item.results[1].skip_reason is None
    )
    assert set(turns.values()) == {4}
    assert 3 <= len(turns) <= 17
