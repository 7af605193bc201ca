"""MonitoringPlan: read from the pipeline that settings make, for exactly what its handlers meet."""

from __future__ import annotations

import pytest
import yaml

from agenteval_otel.config import Settings, build
from agenteval_otel.engine.objectives import Objective
from agenteval_otel.engine.objectives.simulation import by_chance
from agenteval_otel.provisioning import MonitoringPlan
from agenteval_otel.provisioning.delays import false_pages

from .plans import plan_of

SETTINGS = """
evaluators: [ResponseHealth]
agents:
  support:
    evaluators:
      - type: RuleBased
        rules: [{criterion: tone, type: regex, pattern: please}]
      - {type: Coherence, judge: {type: anthropic, model: model-b, spend: {usd_per_day: 1}}}
    criteria:
      - {name: tone, objective: 0.9}
      - {name: Coherence, threshold: 4, objective: 0.7}
  reviewer:
    evaluators:
      - {type: Coherence, judge: {type: anthropic, model: model-a}}
  probe: {enabled: false}
"""


def plan_from(text: str) -> MonitoringPlan:
    return MonitoringPlan.of(build(Settings(**yaml.safe_load(text))))


def test_a_plan_has_each_criterion_as_each_agent_is_scored_by_it() -> None:
    """Its own criteria for each agent that is named, the others' for the rest, with thresholds and
    objectives.
    """
    plan = plan_from(SETTINGS)
    result = {(item.name, item.agents, item.other_agents): item for item in plan.criteria}
    assert set(result) == {
        ("tone", ("support",), ()),
        ("Coherence", ("support",), ()),
        ("Coherence", ("reviewer",), ()),
        ("response_health", (), ("reviewer", "support")),
    }
    assert result["tone", ("support",), ()].objective == 0.9
    judged = result["Coherence", ("support",), ()]
    assert (judged.objective, judged.threshold, judged.calls_model) == (0.7, 0.75, True)
    assert not result["tone", ("support",), ()].calls_model
    assert plan.names == ("Coherence", "response_health", "tone")


def test_a_plan_knows_judges_and_limits_and_leaves_out_what_is_switched_off() -> None:
    """Models in alphabetical order, a limit of any judge, agents that are evaluated."""
    plan = plan_from(SETTINGS)
    assert plan.judge_models == ("model-a", "model-b")
    assert plan.has_spend_limit
    assert plan.agents == ("reviewer", "support")
    without = plan_from("evaluators: [ResponseHealth]")
    assert (without.judge_models, without.has_spend_limit, without.agents) == ((), False, ())


def test_a_plan_knows_how_many_answers_an_evaluator_sees_in_any_case() -> None:
    """All, unless every evaluator of an agent passes over some; then the largest of its ratios, of
    the least agent.
    """
    partly = "{type: ResponseHealth, sample_rate: 0.02}"
    more = "{type: KeywordCoverage, criterion_name: a, expected_keywords: [b], sample_rate: 0.1}"
    own = f"evaluators: [{partly}, {more}]"
    assert plan_from(f"evaluators: [{partly}]").seen_share == 0.02
    assert plan_from(f"agents: {{a: {{{own}}}, b: {{}}}}").seen_share == 0.1
    assert plan_from(SETTINGS).seen_share == 1.0


@pytest.mark.parametrize(
    ("seconds", "time_scale", "written"),
    [
        (86_400, 1.0, "1d"),
        (21_600, 1.0, "6h"),
        (1_800, 1.0, "30m"),
        (90, 1.0, "90s"),
        (0.25, 1.0, "250ms"),
        (86_400, 0.0005, "43200ms"),
        (21_600, 1 / 360, "1m"),
        (60, 1e-9, "1ms"),
    ],
)
def test_durations_are_scaled(seconds: float, time_scale: float, written: str) -> None:
    """In the largest unit that has no fraction, never nothing, and not below a floor."""
    assert plan_of(time_scale=time_scale).duration(seconds) == written
    assert plan_of(time_scale=0.0005).duration(1_800, at_least_s=2.0) == "2s"


def test_false_pages_are_counted_as_breaches_are() -> None:
    """With few verdicts each breach is a page; with many they are one page that does not end;
    processes add theirs.
    """
    objective = Objective(0.95, 100)
    exact, slow = by_chance(objective, 0.05), 1e-4
    pages = false_pages(objective, verdicts_per_s=slow, processes=1)
    assert pages.every_s * slow == pytest.approx(exact.verdicts, rel=0.05)
    assert pages.firing == pytest.approx(exact.in_breach, rel=0.05)
    assert false_pages(objective, verdicts_per_s=10.0, processes=1).firing > 0.99
    assert false_pages(objective, verdicts_per_s=2 * slow, processes=2).firing > 1.4 * pages.firing
