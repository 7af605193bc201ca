"""Agents' entries and criteria sets: what ``@monitor(agent=...)`` leaves out, and what a set
changes in the scores.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import Settings, accounting, configure, monitor
from agenteval_otel.config import AgentSettings
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationInput
from agenteval_otel.sampling import RatioSampler
from tests.config.support import configured, wrong
from tests.testing.doubles import Free, Keeping

KEYWORDS = "{type: KeywordCoverage, criterion_name: kw, expected_keywords: [a, b], threshold: 0.75}"


def answer(question: str = "") -> str:
    return "only a is in it"


def test_an_entry_fills_what_the_decorator_leaves_out(tmp_path: Path) -> None:
    """Evaluators and rate come from the decorator, else from the agent's entry, else from the
    settings.
    """
    kept = configured(
        tmp_path,
        f"""
        sample_rate: 1.0
        agents:
          keywords: {{evaluators: [{KEYWORDS}]}}
          never: {{sample_rate: 0}}
          nobody: {{sample_rate: 1}}
        """,
    )
    for agent, arguments, criteria in (
        ("keywords", {}, ["kw"]),
        ("other", {}, ["response_health"]),
        ("never", {}, None),
        ("never", {"sample_rate": 1.0}, ["response_health"]),
        ("keywords", {"evaluators": [Free()]}, ["fixed"]),
    ):
        kept.saved.clear()
        monitor(agent=agent, **arguments)(answer)()
        assert [result.criterion_name for result in kept.results] == (criteria or []), (
            agent,
            arguments,
        )


def test_an_agent_that_is_switched_off(tmp_path: Path) -> None:
    """Its calls count as disabled, whatever the decorator brings; others go on; nothing of it is
    evaluated.
    """
    kept = configured(
        tmp_path, "sample_rate: 1.0\nagent_span: always\nagents: {off: {enabled: false}}"
    )
    off, on = monitor(agent="off", sampler=RatioSampler())(answer), monitor(agent="on")(answer)
    for _ in range(3):
        assert off() == on() == answer()
    assert len(kept.saved) == 3
    result = accounting()
    assert (result["disabled"], result["evaluated"], sum(result.values())) == (3, 3, 6)


def results_of(kept: Keeping, agent: str) -> dict[str, Any]:
    """The results of one call by their criterion, and the overall score."""
    kept.saved.clear()
    monitor(agent=agent)(answer)()
    (aggregated,) = kept.saved
    by_criterion: dict[str, Any] = {item.criterion_name: item for item in aggregated.results}
    return by_criterion | {"overall": aggregated.overall_score}


def test_a_set_changes_label_and_overall_score(tmp_path: Path) -> None:
    """Threshold and weight of a set change the label and the overall score; what it does not name
    stays.
    """
    kept = configured(
        tmp_path,
        f"""
        evaluators: [ResponseHealth, {KEYWORDS}]
        criteria:
          easy: [{{name: kw, threshold: 0.5, weight: 3}}]
          default: [{{name: response_health, weight: 0}}]
        agents:
          easy: {{criteria: easy}}
          own: {{criteria: [{{name: kw, scale: numeric, minimum: 0, maximum: 2}}]}}
          plain: {{criteria: []}}
        """,
    )
    plain = results_of(kept, "plain")
    assert (plain["kw"].score, plain["kw"].label, plain["kw"].threshold) == (0.5, "fail", 0.75)
    assert plain["overall"] == pytest.approx((1.0 + 0.5) / 2)
    easy = results_of(kept, "easy")
    assert (easy["kw"].score, easy["kw"].label, easy["kw"].threshold) == (0.5, "pass", 0.5)
    assert easy["overall"] == pytest.approx((1.0 + 3 * 0.5) / 4)
    assert easy["response_health"].label == "pass"
    default = results_of(kept, "anybody")
    assert default["overall"] == pytest.approx(0.5)
    own = results_of(kept, "own")
    assert (own["kw"].normalized, own["kw"].threshold) == (0.25, 0.75)


def test_evaluators_see_what_is_asked_for(tmp_path: Path) -> None:
    """With a set the input lists every requested criterion, as in the set; without one none."""
    seen: list[EvaluationInput] = []
    fixed = {"name": "fixed", "objective": 0.99, "scale": "binary"}
    configure(
        evaluators=[Free(action=seen.append)],
        storage=[Keeping()],
        dispatcher="inline",
        criteria={"strict": [fixed, {"name": "other"}]},
        agents={"strict": {"criteria": "strict"}},
    )
    monitor(agent="strict")(answer)()
    monitor(agent="loose")(answer)()
    strict, loose = seen
    (criterion,) = strict.criteria
    assert criterion.model_dump(include=set(fixed)) == fixed
    assert loose.criteria == ()


def test_wrong_entries_and_sets(tmp_path: Path) -> None:
    """One error lists every problem of agents and criteria, with lines and known names."""
    error = wrong(
        tmp_path,
        """\
        criteria:
          support:
            - {name: two words}
            - {name: a, treshold: 1}
            - {weight: -1, name: b}
            - {name: c, objective: 2}
        agents:
          b: {sampel_rate: 1}
          c: {sample_rate: 0.5, sampler: {type: ratio}}
          d: {evaluators: [Nope, {type: RuleBased, rules: [{criterion: a b, type: length}]}]}
          e: {criteria: 7}
        """,
    )
    expected = {
        "settings.yaml:3: criteria.support[0].name: ": "must be a slug",
        "settings.yaml:4: criteria.support[1].treshold: ": "did you mean 'threshold'?",
        "settings.yaml:5: criteria.support[2].weight: ": "",
        "settings.yaml:6: criteria.support[3].objective: ": "",
        "settings.yaml:8: agents.b.sampel_rate: ": "did you mean 'sample_rate'?",
        "settings.yaml:9: agents.c.sampler: ": "not both",
        "settings.yaml:10: agents.d.evaluators[0]: ": "",
        "settings.yaml:11: agents.e.criteria: ": "expected the name of a criteria set, or a list "
        "of criteria, found 7",
    }
    shown = [str(problem) for problem in error.located]
    assert len(shown) == len(expected)
    for problem, (place, words) in zip(shown, expected.items(), strict=True):
        assert problem.startswith(place)
        assert words in problem


def test_sets_are_known_and_hold_a_criterion_once(tmp_path: Path) -> None:
    """An agent that names no set, and a criterion twice in a set, are refused with their place."""
    twice = "criterion 'a' appears twice"
    for text, path, message in (
        ("criteria: {s: [{name: a}, {name: a}]}", "criteria.s", twice),
        ("agents: {x: {criteria: [{name: a}, {name: b}, {name: a}]}}", "agents.x.criteria", twice),
        (
            "criteria: {support: []}\nagents: {x: {criteria: suport}}",
            "agents.x.criteria",
            "did you mean 'support'?",
        ),
    ):
        error = wrong(tmp_path, text)
        assert message in str(error)
        assert error.path == path


def test_evaluators_that_do_not_say_what_they_score(tmp_path: Path) -> None:
    """An evaluator whose criteria cannot be had is refused with its place when it is configured."""

    class Silent(Free):
        def criteria(self) -> Any:
            raise OSError("no model file")

    with pytest.raises(
        ConfigurationError, match=r"evaluators\[0\]: does not say what it scores: OSError: no model"
    ):
        configure(evaluators=[Silent()])
    with pytest.raises(ConfigurationError, match="'two words' must be a slug"):
        Settings(evaluators=[Free(criterion_name="two words")])


@pytest.mark.parametrize(
    "fields",
    [
        {"evaluators": []},
        {"evaluators": ["Nope"]},
        {"evaluators": [Free(criterion_name="not a slug")]},
        {"evaluators": [lambda evaluation_input: True]},
        {"sample_rate": 2},
        {"sample_rate": True},
        {"sample_rate": 0.5, "sampler": RatioSampler()},
        {"sampler": {"type": "ratio", "rate": 1}},
        {"escalation": 7},
        {"evaluators": ["Nope"], "sample_rate": -1},
    ],
)
def test_a_decorator_refuses_what_an_entry_refuses(fields: dict[str, Any]) -> None:
    """Wrong arguments of a decorator have the paths and the words of an agent's entry, all at once."""
    with pytest.raises(ConfigurationError) as of_entry:
        AgentSettings(**fields)
    with pytest.raises(ConfigurationError) as of_decorator:
        monitor(**fields)
    assert of_decorator.value.problems == of_entry.value.problems
