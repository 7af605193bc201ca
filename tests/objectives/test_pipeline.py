"""On the route: events and callbacks of live answers, what is no verdict, bounds, switches and
shutdown.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

from agenteval_otel.engine.agent_settings import AgentSettings
from agenteval_otel.engine.objectives import BreachSettings, Objective, ObjectiveCrossing
from agenteval_otel.engine.pipeline import PoolDispatcher
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.models import EvaluationCriteria
from agenteval_otel.sampling import (
    Escalation,
    FirstOfSampler,
    PatternSampler,
    RatioSampler,
    Sampler,
    SamplingContext,
    SamplingDecision,
)
from agenteval_otel.sampling.escalation import BASELINE
from agenteval_otel.testing import RecordedTelemetry
from tests.docs.generator import load_script
from tests.objectives.support import Good, Kept, pipeline_of, watched_by
from tests.testing.doubles import Keeping

ATTRIBUTES = load_script("generate").ATTRIBUTES
BREACHED, RECOVERED = "agenteval.objective.breached", "agenteval.objective.recovered"


def crossings(telemetry: RecordedTelemetry) -> list[Any]:
    return [event for event in telemetry.events() if event.event_name in (BREACHED, RECOVERED)]


def test_a_breach_and_its_recovery_are_reported(telemetry: RecordedTelemetry) -> None:
    """One event and one call each way, with the same numbers; the event lies in the context of the
    failing answer.
    """
    breaches, recoveries = Kept(), Kept()
    pipeline, ask = pipeline_of(telemetry, on_breach=breaches, on_recovery=recoveries)
    ask("good", times=100)
    assert crossings(telemetry) == []
    with telemetry.tracer().start_as_current_span("host work") as span:
        ask("bad", times=30)
    ask("good", times=200)
    assert pipeline.flush(5.0)
    down, up = crossings(telemetry)
    severities = [(event.event_name, event.severity_text) for event in (down, up)]
    assert severities == [(BREACHED, "WARN"), (RECOVERED, "INFO")]
    assert (down.trace_id, down.span_id) == (
        span.get_span_context().trace_id,
        span.get_span_context().span_id,
    )
    (breach,), (recovery,) = breaches, recoveries
    assert breach.trace_id == f"{span.get_span_context().trace_id:032x}"
    for event, crossing in ((down, breach), (up, recovery)):
        assert dict(event.attributes) == {
            "gen_ai.evaluation.name": "good",
            "gen_ai.agent.name": "shop",
            "agenteval.objective.value": 0.9,
            "agenteval.objective.rate": crossing.rate,
            "agenteval.objective.low": crossing.low,
            "agenteval.objective.high": crossing.high,
            "agenteval.objective.count": crossing.count,
            "agenteval.objective.since": crossing.since_ns / 1e9,
            **({"agenteval.sampling.clustered": True} if crossing.clustered else {}),
        }
        assert event.body == str(crossing)
    assert breach.rate < 0.9 <= recovery.rate
    assert recovery.clustered  # 30 calls were of one trace
    assert breach.at_ns == breach.since_ns == recovery.since_ns < recovery.at_ns
    assert str(breach).startswith("objective breached: good of shop passes ")


def test_one_id_for_everything_is_told(
    telemetry: RecordedTelemetry, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, after a thousand verdicts of one conversation: its objective cannot be watched."""
    criteria = (EvaluationCriteria(name="good", objective=0.9),)
    _, ask = pipeline_of(telemetry, criteria=criteria)
    with telemetry.tracer().start_as_current_span("one trace"):
        ask("good", times=1_000)
        assert "conversations_repeat" not in caplog.text
        ask("good", times=60)
    assert caplog.text.count("event='conversations_repeat'") == 1


def test_the_table_of_attributes_holds(telemetry: RecordedTelemetry) -> None:
    """A reminder has every attribute that the reference knows, and no other event has more."""
    _, ask = pipeline_of(
        telemetry, breach=BreachSettings(minimum=5, false_alarm_every=100, remind_s=1e-9)
    )
    # one trace: its calls are sampled together
    with telemetry.tracer().start_as_current_span("host work"):
        ask("bad", times=30)
    first, *again = crossings(telemetry)
    assert again
    always = {item.name for item in ATTRIBUTES if item.crossing == "always"}
    assert set(first.attributes) == always
    reminder = set(again[-1].attributes)
    assert again[-1].attributes["agenteval.objective.reminder"] is True
    ask("bad", times=50)  # each in a trace of its own: enough for an interval
    interval = set(crossings(telemetry)[-1].attributes)
    assert interval - reminder == {"agenteval.objective.low", "agenteval.objective.high"}
    assert reminder | interval == {item.name for item in ATTRIBUTES if item.crossing}


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("broken", {}),
        ("nothing", {}),
        ("word", {}),
        ("bad", {"objective": None}),
        ("bad", {"objective": 0.0}),
        ("bad", {"breach": BreachSettings(enabled=False)}),
    ],
)
def test_nothing_is_watched_without_verdicts_or_an_objective(
    telemetry: RecordedTelemetry, message: str, arguments: dict[str, Any]
) -> None:
    """Failures, skips and categories are no verdicts; below an objective of 0 nothing lies."""
    pipeline, ask = pipeline_of(telemetry, **arguments)
    ask(message, times=100)
    assert (crossings(telemetry), len(watched_by(pipeline).tracks)) == ([], 0)


def test_each_agent_has_its_own_track(telemetry: RecordedTelemetry) -> None:
    """Each has a track and an objective of its own; what one does is not another's breach."""
    breaches = Kept()
    strict = AgentSettings(criteria=(EvaluationCriteria(name="good", objective=1.0),))
    none = AgentSettings(criteria=(EvaluationCriteria(name="good", weight=1.0),))
    pipeline, ask = pipeline_of(
        telemetry, on_breach=breaches, agents={"strict": strict, "none": none}
    )
    for agent in ("shop", "strict", "none"):
        ask("good", times=50, agent=agent)
        ask("bad", agent=agent)
    assert pipeline.flush(5.0)
    assert [(item.agent, item.objective) for item in breaches] == [("strict", 1.0)]


class Unlike(Sampler, type="objective_unlike"):
    """Takes every answer; claims that of the good ones one in twenty is taken, or knows no
    probability.
    """

    known: bool = True

    def decide(self, context: SamplingContext) -> SamplingDecision:
        if context.evaluation_input is None:
            return SamplingDecision(True, None, "unlike", settled=False)
        probability = 1.0 if context.evaluation_input.response_text == "bad" else 0.05
        return SamplingDecision(True, probability if self.known else None, "unlike")


def test_weights_put_uneven_sampling_right(telemetry: RecordedTelemetry) -> None:
    """Every bad answer is evaluated and one good one in twenty: half of the verdicts fail, and
    nothing is breached.
    """
    _, ask = pipeline_of(telemetry, sampler=Unlike())
    for _ in range(50):
        ask("good")
        ask("bad")
    assert crossings(telemetry) == []
    ask("bad", times=150)
    assert [event.event_name for event in crossings(telemetry)] == [BREACHED]


def test_an_unknown_probability_is_left_out(
    telemetry: RecordedTelemetry, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a verdict stands for an unknown number of answers; the log reports once that it is left
    out.
    """
    _, ask = pipeline_of(telemetry, sampler=Unlike(known=False))
    ask("bad", times=100)
    assert crossings(telemetry) == []
    assert len([line for line in caplog.messages if "verdict_left_out" in line]) <= 1


def test_answers_of_escalation_rules_weigh_less_than_those_of_the_baseline(
    telemetry: RecordedTelemetry,
) -> None:
    """Rules choose what looks bad: ten failures of theirs say less than ten of the baseline."""
    result: dict[str, float] = {}
    for reason in ("result", BASELINE):
        kept = Keeping()
        _, ask = pipeline_of(
            telemetry, objective=0.5, storage=(kept,), breach=BreachSettings(enabled=False)
        )
        ask("bad")
        taken = kept.results[0].model_copy(update={"sampling_reason": reason, "probability": 1.0})
        response = kept.saved[0].model_copy(update={"results": (taken,)})
        watched, _ = pipeline_of(telemetry, objective=0.5)
        for _ in range(10):
            watched_by(watched).observe(
                response, {"good": Objective(0.5)}, None, baseline_rate=0.01
            )
        track = watched_by(watched).tracks.of("shop", "good", Objective(0.5))
        assert track is not None
        result[reason] = track.evidence.value
    assert 9 < result["result"] < 12
    assert result[BASELINE] > 20


def test_handlers_know_their_baseline_rate(telemetry: RecordedTelemetry) -> None:
    """That of the escalation; 1 without one."""
    pipeline, _ = pipeline_of(telemetry, objective=0.5)
    assert pipeline.handler("shop").baseline_rate == 1.0
    written = AgentSettings(
        evaluators=(Good(), ResponseHealth()),
        escalation=Escalation(baseline_rate=0.01, criteria=("good",)),
    )
    assert pipeline.handler("shop", written).baseline_rate == 0.01


def test_what_processes_share_is_exported(telemetry: RecordedTelemetry) -> None:
    """Counters by the bet, all of one moment, from the first verdict on and through a breach; and how
    long ago they began.
    """
    pipeline, ask = pipeline_of(telemetry)
    ask("good", times=10)
    ask("bad", times=100)
    ask("nothing", times=5)
    assert pipeline.flush(5.0)

    def shared(name: str) -> dict[str, float]:
        points = telemetry.points(f"agenteval.objective.{name}")
        assert {point.attributes["gen_ai.agent.name"] for point in points} == {"shop"}
        assert {point.attributes["gen_ai.evaluation.name"] for point in points} == {"good"}
        return {
            point.attributes.get("agenteval.objective.bet", ""): point.value for point in points
        }

    gains, losses, runs = (shared(name) for name in ("gain", "loss", "run_gain"))
    assert runs == dict.fromkeys(("0.05", "0.1", "0.2", "0.5"), 0.0)
    for bet, gain in gains.items():
        assert gain == pytest.approx(100 * math.log1p(float(bet) * 9))
        assert losses[bet] == pytest.approx(-10 * math.log1p(-float(bet)))
    assert shared("verdicts") == {"": 110}
    assert 0 <= shared("age")[""] < 60
    again = pipeline_of(telemetry, storage=())[0]
    watched_by(again).take_over(watched_by(pipeline))
    assert watched_by(again).shared()["good", "shop"].verdicts == 110


def test_a_decorated_agent_is_watched_whatever_else_is(telemetry: RecordedTelemetry) -> None:
    """Agents of clients take up all the room that there is for them, and none of the operator's."""
    pipeline, ask = pipeline_of(telemetry)
    tracks = watched_by(pipeline).tracks
    for number in range(2_000):
        tracks.of("made-up", f"c{number}", Objective(0.5))
    assert len(tracks) == 1_024
    ask("bad", times=3)
    assert "objectives" not in pipeline.accounting.failures
    assert len(tracks) > 1_024


def test_functions_that_raise_are_counted_by_their_name(telemetry: RecordedTelemetry) -> None:
    """The accounting tells which of the two it was; the events go out."""

    def bad(crossing: ObjectiveCrossing) -> None:
        raise ValueError(crossing.kind)

    pipeline, ask = pipeline_of(telemetry, on_breach=bad, on_recovery=bad)
    ask("bad", times=20)
    ask("good", times=200)
    assert pipeline.flush(5.0)
    assert pipeline.accounting.failures == {"on_breach": 1, "on_recovery": 1}
    assert [event.event_name for event in crossings(telemetry)] == [BREACHED, RECOVERED]


def test_answers_do_not_wait_for_a_hanging_callback(telemetry: RecordedTelemetry) -> None:
    """While a callback hangs, answers are evaluated; shutdown keeps its time limit."""
    gate, called = threading.Event(), threading.Event()

    def hang(crossing: ObjectiveCrossing) -> None:
        called.set()
        gate.wait(30)

    pipeline, ask = pipeline_of(telemetry, on_breach=hang, dispatcher=PoolDispatcher(linger_s=0.0))
    try:
        ask("bad", times=40)
        assert called.wait(10)
        assert pipeline.flush(0.2) is False
        ask("bad", times=100)
        assert pipeline.dispatcher.flush(10.0)
        assert pipeline.accounting.outcomes()["evaluated"] == 140
        pipeline.shutdown(0.5)
    finally:
        gate.set()
    for thread in threading.enumerate():
        if thread.name == "agenteval-callback":
            thread.join(5)


def test_a_rule_that_prefers_bad_answers_causes_no_false_alarm(
    telemetry: RecordedTelemetry,
) -> None:
    """Every failure is seen and few of the others, none of them at first: the bets know how little
    that proves.
    """
    sampler = FirstOfSampler(samplers=[PatternSampler(pattern="bad"), RatioSampler(ratio=0.01)])
    pipeline, ask = pipeline_of(telemetry, objective=0.8, sampler=sampler)
    for _ in range(50):
        ask("bad")
        ask("good", times=4)
    assert pipeline.accounting.outcomes()["evaluated"] >= 50
    assert crossings(telemetry) == []
