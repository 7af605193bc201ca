"""Escalation in settings files: for all agents and for one, and what is wrong with it by its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from agenteval_otel import monitor
from agenteval_otel.cli import main
from agenteval_otel.evaluators import CriterionEvaluator
from agenteval_otel.models import EvaluationInput, Score
from agenteval_otel.sampling import Escalation, ResultSampler, SlowSampler
from tests.config.support import configured, load, written_settings, wrong


class Dear(CriterionEvaluator, type="EscalationTestDear"):
    """Stands for a judge."""

    criterion_name: str = "dear"

    async def score(self, evaluation_input: EvaluationInput) -> Score:
        return Score(value=1.0)


EVALUATORS = "evaluators: [ResponseHealth, {type: EscalationTestDear}]"


def answer(question: str = "") -> str:
    return question or "An answer."


def test_a_file_says_it(tmp_path: Path) -> None:
    """Floor, rules by their types, and the criteria that wait; a floor alone is one as well."""
    settings = load(
        tmp_path,
        f"""
        {EVALUATORS}
        escalation:
          baseline_rate: 0.1
          rules:
            - {{type: result, labels: [fail], criteria: [response_health]}}
            - {{type: slow, above_s: 5, ratio: 0.5}}
          criteria: [dear]
        """,
    ).settings
    rules = (
        ResultSampler(labels=("fail",), criteria=("response_health",)),
        SlowSampler(above_s=5, ratio=0.5),
    )
    assert settings.escalation == Escalation(baseline_rate=0.1, rules=rules, criteria=("dear",))
    assert load(tmp_path, "escalation: {}").settings.escalation == Escalation()
    assert load(tmp_path, "sample_rate: 0.1").settings.escalation is None
    profile = "escalation: {baseline_rate: 0.5}\nprofiles: {all: {escalation: false}}"
    assert load(tmp_path, profile).settings.escalation == Escalation(baseline_rate=0.5)
    assert load(tmp_path, profile, profile="all").settings.escalation is False


def test_agents_have_their_own_or_none(tmp_path: Path) -> None:
    """An entry's escalation counts before that of the file; false has all evaluators see every
    answer.
    """
    kept = configured(
        tmp_path,
        f"""
        sample_rate: 1.0
        {EVALUATORS}
        escalation: {{baseline_rate: 0.0000001, rules: [{{type: result, labels: [fail]}}]}}
        agents:
          all: {{escalation: false}}
          none: {{escalation: {{baseline_rate: 0.0000001}}}}
          heir: {{sample_rate: 1.0}}
        """,
    )
    for agent, text, reason in (
        ("all", "Fine.", None),
        ("none", "", "not_escalated"),
        ("heir", "Fine.", "not_escalated"),
        ("other", "I'm sorry, but I cannot help with that.", None),
    ):
        kept.saved.clear()
        monitor(agent=agent)(lambda text: text)(text)
        assert kept.results[1].skip_reason == reason, agent
    assert kept.results[1].sampling_reason == "result"


def test_variables_say_it_too(tmp_path: Path) -> None:
    """The baseline rate alone, all fields, and no escalation, for the process and for one agent."""
    for environment, expected in (
        ({"AGENTEVAL_ESCALATION__BASELINE_RATE": "0.25"}, Escalation(baseline_rate=0.25)),
        (
            {
                "AGENTEVAL_ESCALATION": "{baseline_rate: 0.5, rules: [{type: result, labels: [fail]}]}"
            },
            Escalation(baseline_rate=0.5, rules=[ResultSampler(labels=["fail"])]),
        ),
        ({"AGENTEVAL_ESCALATION": "false"}, False),
    ):
        settings = load(tmp_path, EVALUATORS, environment=environment).settings
        assert settings.escalation == expected
    own = load(
        tmp_path, EVALUATORS, environment={"AGENTEVAL_AGENTS__A__ESCALATION": "off"}
    ).settings.agents["a"]
    assert own.escalation is False
    error = wrong(tmp_path, EVALUATORS, environment={"AGENTEVAL_ESCALATION__BASELINE_RAT": "0.25"})
    assert (
        "variable AGENTEVAL_ESCALATION__BASELINE_RAT: escalation.baseline_rat: unknown field (did"
        in str(error)
    )


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("escalation: [0.1]", "escalation", "expected a mapping, or false for none, found list"),
        ("escalation: {rules: [{type: resutl}]}", "escalation.rules[0]", "did you mean 'result'?"),
        (
            "escalation: {rules: [{type: result, failed: true, criteria: [response_helth]}]}",
            "escalation.rules[0].criteria[0]",
            "no evaluator scores 'response_helth': rules look at the first stage (did you mean 'response_health'?)",
        ),
        (
            "escalation: {rules: [{type: result, failed: true, criteria: [dear]}]}",
            "escalation.rules[0].criteria[0]",
            "'dear' is scored in the second stage: rules look at the first stage. Known: response_health",
        ),
        (
            "agents: {a: {escalation: {rules: [{type: result, disagreement: true}]}}}",
            "agents.a.escalation.rules[0].disagreement",
            "never matches: the first stage has one result, of 'response_heal",
        ),
        (
            "escalation: {rules: [{type: result, disagreement: true, criteria: [response_health]}]}",
            "escalation.rules[0].disagreement",
            "never matches: the first stage has one result",
        ),
        (
            "agents: {a: {escalation: {rules: [{type: result, failed: true}]}, "
            "evaluators: [{type: EscalationTestDear}]}}",
            "agents.a.escalation.rules[0]",
            "never matches: every evaluator is in the second stage",
        ),
        (
            "escalation: {rules: [{type: result, above: 0.7, below: 0.3}]}",
            "escalation.rules[0]",
            "matches no score",
        ),
        (
            "escalation: {criteria: [deer]}",
            "escalation.criteria[0]",
            "no evaluator scores 'deer' (did you mean 'dear'?)",
        ),
        (
            "agents: {a: {escalation: {baseline_rate: 0.1}, evaluators: [ResponseHealth]}}",
            "agents.a.escalation",
            "no evaluator asks a model, so none waits",
        ),
        (
            "agents: {a: {escalation: {baseline_rate: nan}}}",
            "agents.a.escalation.baseline_rate",
            "expected a number",
        ),
        (
            "agents: {a: {escalation: true}}",
            "agents.a.escalation",
            "expected a mapping, or false for none, found bool",
        ),
        ("sampler: {type: result, failed: true}", "sampler", "put it below escalation.rules"),
    ],
)
def test_what_is_wrong_is_said_by_its_place(
    tmp_path: Path, text: str, path: str, words: str
) -> None:
    """With the line's field, and what there is."""
    problems = wrong(tmp_path, f"{EVALUATORS}\n{text}".replace("nan", ".nan")).problems
    assert len(problems) == 1
    assert problems[0][0] == path
    assert words in problems[0][1]


def test_the_settings_own_is_for_all_that_may_come(tmp_path: Path) -> None:
    """A criterion that an agent scores will do, and handlers may bring the evaluators that wait."""
    text = "escalation: {rules: [{type: result, criteria: [kw], below: 1}]}\nagents: {a: {evaluators: [KW]}}"
    keywords = "{type: KeywordCoverage, criterion_name: kw, expected_keywords: [a]}"
    assert load(tmp_path, text.replace("KW", keywords)).settings.escalation is not None
    own = text.replace("KW]", f"{keywords}], escalation: false")
    assert "no evaluator scores 'kw'" in str(wrong(tmp_path, own))


def test_check_tells_who_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`check` shows which criteria wait, and for what."""
    text = f"{EVALUATORS}\nescalation: {{baseline_rate: 0.1, rules: [{{type: result, labels: [fail]}}]}}\n"
    text += "agents: {a: {evaluators: [ResponseHealth]}, b: {escalation: false}}"
    assert main(["check", str(written_settings(tmp_path, text))]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "escalation" in line]
    assert sorted(lines) == [
        "  escalation to dear: 10 % of the sampled, and result (labels ['fail'])",
        "  escalation: no evaluator is escalated",
    ]
