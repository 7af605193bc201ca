"""Every entry point gives the same results: offline, a suite, the `evaluate` command, and the live
pipeline.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agenteval_otel import (
    EvaluationRunConfig,
    Suite,
    monitor,
    run_evaluation_sync,
    run_evaluations_sync,
)
from agenteval_otel.capture.build import FACTS
from agenteval_otel.cli import main
from agenteval_otel.engine.agent_settings import AgentSettings
from agenteval_otel.engine.aggregation import overall_score
from agenteval_otel.engine.pipeline import Dispatcher, InlineDispatcher, PoolDispatcher
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import (
    CriterionEvaluator,
    Evaluator,
    KeywordCoverage,
    LexicalSimilarity,
    ResponseHealth,
    RuleBased,
    Sentiment,
    ToolUsage,
    Toxicity,
)
from agenteval_otel.models import (
    AggregatedEvaluationResult,
    EvaluationCriteria,
    EvaluationInput,
    EvaluationResult,
)
from tests.golden import lines, same, vectors
from tests.promises.bench import pipeline_of
from tests.test_golden_runner import TYPES, entry_of
from tests.testing.doubles import Keeping

pytestmark = pytest.mark.shared


class Case(NamedTuple):
    """One answer, and what scores it.

    Attributes:
        facts: What the handler's ``capture=`` says of the call.
    """

    name: str
    evaluators: tuple[Evaluator, ...]
    criteria: tuple[EvaluationCriteria, ...]
    facts: Mapping[str, Any]


class Recording(CriterionEvaluator, type="SameResultsRecording"):
    """Keeps the inputs that the live pipeline builds."""

    criterion_name: str = "recorded"

    def score(self, evaluation_input: EvaluationInput) -> bool:
        INPUTS[str(evaluation_input.agent)].append(evaluation_input)
        return True


INPUTS: dict[str, list[EvaluationInput]] = {}


def golden_cases() -> list[Case]:
    """Those vectors whose configuration is a strict one too."""
    cases: list[Case] = []
    for parameter in vectors(*TYPES):
        vector = parameter.values[0]
        if vector is None:
            pytest.skip("the golden vectors are absent")
        try:
            evaluators = EvaluationRunConfig.model_validate(
                {"evaluatorConfigs": [entry_of(vector)]}
            ).evaluators
            requests = EvaluationInput.model_validate(vector["input"])
            declared = [criterion for evaluator in evaluators for criterion in evaluator.criteria()]
            changed = {criterion.name: criterion for criterion in reversed(requests.criteria)}
            criteria = tuple(changed.get(criterion.name, criterion) for criterion in declared)
            EvaluationRunConfig(evaluators=evaluators, criteria=criteria)
        except ConfigurationError:
            continue
        facts = {
            name: value for name in FACTS if (value := getattr(requests, name, None)) is not None
        }
        cases.append(Case(vector["id"], evaluators, criteria, facts))
    return cases


def airline_cases() -> list[Case]:
    """Every sixth of the 943 assistant turns of the recorded conversations."""
    evaluators: tuple[Evaluator, ...] = (
        ResponseHealth(),
        RuleBased(rules=[{"criterion": "short_enough", "type": "length", "max": 1200}]),
        KeywordCoverage(
            criterion_name="courtesy", expected_keywords=["please", "thank"], threshold=0.5
        ),
        LexicalSimilarity(criterion_name="echo", source_field="response", reference_field="prompt"),
        Sentiment(criterion_name="mood"),
        Toxicity(criterion_name="clean", toxic_terms=["stupid", "idiot"]),
        ToolUsage.load(
            {
                "rules": [
                    {
                        "criterion_name": "no_transfer",
                        "forbidden_tools": ["transfer_to_human_agents"],
                    }
                ]
            }
        ),
    )
    criteria = tuple(criterion for evaluator in evaluators for criterion in evaluator.criteria())
    cases = []
    for conversation in lines("tau_airline_sample.jsonl"):
        for position, message in enumerate(conversation["messages"]):
            if message["role"] != "assistant":
                continue
            before = conversation["messages"][:position]
            requests = [entry["content"] for entry in before if entry["role"] == "user"]
            facts = {
                "response": message.get("content") or "",
                "prompt": requests[-1] if requests else "",
                "tool_calls": message.get("tool_calls") or None,
                "conversation_id": conversation["id"],
            }
            facts = {name: value for name, value in facts.items() if value is not None}
            cases.append(Case(f"{conversation['id']}-{position}", evaluators, criteria, facts))
    return cases[::6]


def live(
    cases: Sequence[Case], dispatcher: Dispatcher, *more: Evaluator
) -> dict[str, AggregatedEvaluationResult]:
    """What the live pipeline stores of each case."""
    kept = Keeping()
    agents = {case.name: AgentSettings(criteria=case.criteria) for case in cases}
    pipeline = pipeline_of(
        storage=(kept,), dispatcher=dispatcher, redactors=(), agents=agents, sheds=False
    )
    try:
        for case in cases:
            evaluators = more or case.evaluators
            handler = monitor(
                pipeline=pipeline,
                agent=case.name,
                evaluators=evaluators,
                capture=lambda *_, case=case: dict(case.facts),
            )(lambda: "")
            handler()
        assert pipeline.flush(100)
        assert pipeline.accounting.outcomes()["evaluated"] == len(cases)
        return {str(saved.agent): saved for saved in kept.saved}
    finally:
        pipeline.shutdown(20)


def recorded(cases: Sequence[Case]) -> dict[str, EvaluationInput]:
    """The inputs that the live pipeline builds."""
    INPUTS.clear()
    INPUTS.update({case.name: [] for case in cases})
    live(cases, InlineDispatcher(), Recording(execution="inline"))
    return {name: inputs[0].model_copy(update={"criteria": ()}) for name, inputs in INPUTS.items()}


def shape(results: Sequence[EvaluationResult]) -> list[Any]:
    """What has to be the same in each result."""
    return [
        [
            result.criterion_name,
            result.status,
            result.score,
            result.normalized,
            result.label,
            result.passed,
            result.reason_code,
            result.error_type,
        ]
        for result in results
    ]


def whole(actual: AggregatedEvaluationResult) -> list[Any]:
    return [shape(actual.results), actual.overall_score]


def _without_other(result: list[Any], expected: list[Any]) -> list[Any]:
    """Text that is no category leaves the live pipeline as ``_other``: that is no other score."""
    return [
        there if here == "_other" and isinstance(there, str) else here
        for here, there in zip(result, expected, strict=True)
    ]


def config_of(case: Case) -> EvaluationRunConfig:
    return EvaluationRunConfig(evaluators=case.evaluators, criteria=case.criteria, redactors=())


def by_suite(case: Case, made: EvaluationInput) -> list[Any] | None:
    """Results of a suite, with the pipeline's overall score; None where two evaluators have one
    criterion.
    """
    try:
        suite = Suite(evaluators=case.evaluators, continue_on_error=True, redactors=())
    except ConfigurationError:
        return None
    results = suite.run_sync(made.model_copy(update={"criteria": case.criteria})).results
    return [shape(results), overall_score(results, case.criteria)]


def by_command(case: Case, made: Sequence[EvaluationInput], folder: Path) -> list[list[Any]] | None:
    """Results of `evaluate`, from a settings file and a dataset; None where an evaluator has no
    form in settings.
    """
    try:
        evaluators, criteria = (
            [part.model_dump(mode="json", by_alias=True, exclude_unset=True) for part in parts]
            for parts in (case.evaluators, case.criteria)
        )
        settings = {
            "evaluators": evaluators,
            "criteria": {"default": criteria},
            "redactors": [],
            "telemetry": {"detail": "none"},
        }
        text = json.dumps(settings, allow_nan=False)
        dataset = "".join(
            json.dumps(
                evaluator.model_dump(mode="json", by_alias=True, exclude_none=True), allow_nan=False
            )
            + "\n"
            for evaluator in made
        )
    except Exception:  # a function, a stub of a model, a number that JSON does not have
        return None
    (folder / "settings.json").write_text(text)
    (folder / "data.jsonl").write_text(dataset)
    results = folder / "results.jsonl"
    results.unlink(missing_ok=True)
    arguments = [
        str(folder / "data.jsonl"),
        "--settings",
        str(folder / "settings.json"),
        "--results",
        str(results),
    ]
    code = main(["evaluate", *arguments, "--quiet", "--output", str(folder / "report.txt")])
    assert code in (0, 2), f"{case.name}: exit code {code}"
    if not results.exists():
        return None
    rows = [
        AggregatedEvaluationResult.model_validate_json(line)
        for line in results.read_text().splitlines()
    ]
    return [whole(row) for row in rows]


class Answers(NamedTuple):
    """Cases, and by their names the inputs that the live pipeline builds of them."""

    cases: list[Case]
    inputs: dict[str, EvaluationInput]


@pytest.fixture(scope="module", params=[golden_cases, airline_cases], ids=["golden", "airline"])
def answers(request: pytest.FixtureRequest) -> Answers:
    cases: list[Case] = request.param()
    assert len(cases) > 100
    return Answers(cases, recorded(cases))


def test_every_entry_point_gives_the_same_results(answers: Answers) -> None:
    """Score, normalized, label, passed, reason code, failures and overall score, on the input that
    a call gives.
    """
    cases, inputs = answers
    expected = {
        case.name: whole(run_evaluation_sync(inputs[case.name], config_of(case))) for case in cases
    }
    assert all(results for results, _ in expected.values())
    for dispatcher in (InlineDispatcher(), PoolDispatcher()):
        stored = live(cases, dispatcher)
        assert stored.keys() == expected.keys()
        for name, saved in stored.items():
            results = [
                _without_other(*both)
                for both in zip(shape(saved.results), expected[name][0], strict=True)
            ]
            assert same([results, saved.overall_score], expected[name]), f"{name}, {dispatcher}"
    for case in cases:
        answer = by_suite(case, inputs[case.name])
        assert answer is None or same(answer, expected[case.name]), case.name
    for case in cases[::5]:
        (batched,) = run_evaluations_sync([inputs[case.name]], config_of(case))
        assert same(whole(batched), expected[case.name]), case.name


def test_the_command_and_a_batch_give_the_same_results(answers: Answers, tmp_path: Path) -> None:
    """`evaluate` reads the same inputs and evaluators from files, and its results say the same. It
    runs once for all turns, and for every third golden vector.
    """
    cases, inputs = answers
    groups: dict[int, list[Case]] = {}
    for case in cases:
        groups.setdefault(id(case.evaluators), []).append(case)
    compared = 0
    chosen = list(groups.values())[::3]
    for group in chosen:
        made = [inputs[case.name] for case in group]
        written = by_command(group[0], made, tmp_path)
        if written is None:
            continue
        batch = run_evaluations_sync(made, config_of(group[0]))
        compared += len(written)
        for case, answer, actual in zip(group, written, batch, strict=True):
            assert answer[0]
            assert same(answer, whole(actual)), f"{case.name}: {answer} is not {whole(actual)}"
    assert compared >= sum(map(len, chosen)) / 2
