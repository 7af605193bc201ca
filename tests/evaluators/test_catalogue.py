"""The catalogue: every criterion is a type of its own, judged on its scale, and skipped without
what it needs.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from agenteval_otel import EvaluationInput, EvaluationRunConfig, run_evaluation_sync
from agenteval_otel.components.loading import resolve
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Coherence, Evaluator, LLMJudge, Rubric
from agenteval_otel.evaluators.llm_judge import presets as types
from agenteval_otel.evaluators.llm_judge import rubric
from agenteval_otel.evaluators.llm_judge.prompt import NAMES as READ_AS
from agenteval_otel.evaluators.llm_judge.rubric import entry_of
from agenteval_otel.judges import JudgeRequest
from agenteval_otel.testing import ScriptedJudge
from agenteval_otel.testing.checks import check_component, check_evaluator
from tests.evaluators.catalogue import FULL, NAMES, built, reply_for, results
from tests.judges.test_prompt import taken_apart

each = pytest.mark.parametrize("name", NAMES)
WITHOUT = {
    "question": {"prompt": None},
    "response": {"response": None},
    "ground_truth": {"ground_truth": None},
    "context": {"context": None},
    "history": {"message_history": None},
    "tool_calls": {"tool_calls": None},
    "tool_results": {"tool_calls": None},
    "tool_definitions": {"agent_config": None},
}


def lacking(*fields: str) -> EvaluationInput:
    return FULL.model_copy(
        update={key: value for field in fields for key, value in WITHOUT[field].items()}
    )


def test_every_file_is_a_type_and_every_type_has_its_file() -> None:
    """What settings can name is what is written down."""
    written = {
        name for name, kind in Evaluator.registry.items() if issubclass(kind, types.CatalogueJudge)
    }
    assert written == set(NAMES)


@each
def test_a_file_says_all_that_a_criterion_has(name: str) -> None:
    """Levels that are all described, or claims; the fields that it speaks of; and the cases that
    judges get wrong.
    """
    entry = entry_of(name)
    assert ("max_windows" in entry) == (entry["group"] == "safety")
    assert len(entry["steps"]) >= 3
    assert len(entry["edge_cases"]) >= 4
    assert ("levels" in entry) != ("claims" in entry)
    if "levels" in entry:
        assert list(entry["levels"]) == (
            [1, 2, 3, 4, 5] if entry["scale"] == "likert5" else [True, False]
        )
        # A harm's name and a question whose yes is bad would have judges give true for what is to
        # fail.
        assert ("True is good: " in entry["description"]) == (entry["scale"] == "pass/fail")
    else:
        assert entry["scale"] == "numeric"
    fields = [field for wanted in (*entry["needs"], *entry["takes"]) for field in wanted.split("|")]
    wording = json.dumps(entry, ensure_ascii=False).lower()
    named = set(re.findall(r"`([a-z_]+)`", wording))
    assert named
    assert named <= {READ_AS[field] for field in fields}, (
        "a judge would guess at a field that it is not shown"
    )
    assert "address" in wording or "whoever judges" in wording
    if entry["scale"] == "likert5":
        assert any(word in wording for word in ("long", "length", "short", "more passages"))
    if "response" in entry["needs"] and name not in ("Fluency", "ToxicLanguage"):
        assert "refus" in wording


@each
def test_it_is_judged_on_its_scale(name: str) -> None:
    """By name and with its defaults: best answer, best score, verdict and threshold; the worst one
    fails.
    """
    judge = ScriptedJudge(
        replies=(
            reply_for(name),
            reply_for(name, 1 if entry_of(name)["scale"] == "likert5" else False),
        )
    )
    evaluator = built(name, judge)
    (best,), (worst,) = results(evaluator), results(evaluator)
    assert (best.status, best.criterion_name, best.normalized, best.passed) == (
        "scored",
        name,
        1.0,
        True,
    )
    assert (worst.status, worst.normalized, worst.passed) == ("scored", 0.0, False)
    assert best.evaluator_type == name
    assert best.threshold == entry_of(name).get("threshold")
    assert best.reasoning == "r"
    rating = (best.metadata or {}).get("rating")
    assert rating == ("Exceptional" if entry_of(name)["scale"] == "likert5" else None)


@each
def test_its_form_from_0_to_1(name: str) -> None:
    """The same judgement on request as a share: 4 of 1 to 5 is 0.75, and passes or fails as it did."""
    likert = entry_of(name)["scale"] == "likert5"
    evaluator = built(
        name, ScriptedJudge(fallback=reply_for(name, 4 if likert else None)), scale="numeric"
    )
    (result,) = results(evaluator)
    assert type(result.score) is float
    assert result.score == result.normalized == (0.75 if likert else 1.0)
    assert result.passed is True
    assert result.threshold == (0.75 if likert else entry_of(name).get("threshold", 1.0))
    assert evaluator.criteria()[0].scale == "numeric"


@pytest.mark.parametrize(
    ("name", "field"), [(name, wanted) for name in NAMES for wanted in entry_of(name)["needs"]]
)
def test_without_what_it_needs_it_is_skipped(name: str, field: str) -> None:
    """With the field as the reason, and nobody is asked; of alternatives all have to be missing."""
    judge = ScriptedJudge(fallback=reply_for(name))
    fields = field.split("|")
    config = EvaluationRunConfig(evaluators=[built(name, judge, evaluates="answer")])
    (result,) = run_evaluation_sync(lacking(*fields), config).results
    assert result.status == "skipped"
    assert (result.skip_reason or "").split(":")[0] == f"no {fields[0].replace('_', ' ')}"
    assert judge.calls == 0


def test_a_need_with_alternatives_takes_the_first_that_there_is() -> None:
    """Groundedness goes by the context, else by the reference, and by results of tools; only that
    is shown.
    """
    judge = ScriptedJudge(fallback=reply_for("Groundedness"))
    evaluator = built("Groundedness", judge)
    for left_out, shown in (
        ((), ["input", "response", "context", "tool_results"]),
        (("context",), ["input", "response", "reference", "tool_results"]),
        (("context", "tool_calls", "question"), ["response", "reference"]),
        (("context", "ground_truth"), ["input", "response", "tool_results"]),
    ):
        results(evaluator, lacking(*left_out))
        assert list(taken_apart(judge.requests[-1].prompt)[1]) == shown
    (result,) = run_evaluation_sync(
        lacking("context", "tool_calls", "ground_truth"),
        EvaluationRunConfig(evaluators=[evaluator]),
    ).results
    assert result.skip_reason == "no context: nor ground truth, nor tool results"


@each
def test_it_keeps_the_contract(name: str) -> None:
    """Any input gives results or skips, the same again; its dump builds it again, in its own form
    and from 0 to 1.
    """
    judge = ScriptedJudge(fallback=reply_for(name))
    check_evaluator(built(name, judge))
    for fields in (
        {},
        {"scale": "numeric"},
        {"threshold": 1.0, "weight": 2, "objective": 0.9, "tags": ["x"]},
    ):
        if not (entry_of(name)["scale"] == "pass/fail" and "threshold" in fields):
            check_component(built(name, judge, **fields), Evaluator)


def test_settings_name_criteria_by_type() -> None:
    """Alone as an evaluator, several in one call as rubrics, by name or with changes."""
    judge = {"type": "scripted"}
    alone = resolve(Evaluator, {"type": "Coherence", "judge": judge, "weight": 2, "threshold": 5})
    assert isinstance(alone, Coherence)
    assert (
        alone.criteria()[0].name,
        alone.criteria()[0].weight,
        alone.criteria()[0].threshold,
    ) == ("Coherence", 2, 5)
    assert alone.tags == ("quality",)
    together = LLMJudge.load(
        {
            "judge": judge,
            "rubrics": [
                "Coherence",
                {"type": "Fluency", "criterionName": "style", "scale": "numeric"},
                {"criterion_name": "own"},
            ],
        }
    )
    assert [
        (criterion.name, criterion.scale, criterion.threshold) for criterion in together.criteria()
    ] == [
        ("Coherence", "likert5", 4.0),
        ("style", "numeric", 0.75),
        ("own", "pass/fail", None),
    ]
    check_component(together, Evaluator)


@pytest.mark.parametrize(
    ("fields", "said_of_it"),
    [
        ({"type": "Coherence"}, "judge: required field is missing"),
        (
            {"type": "Coherence", "judge": "scripted", "description": "d"},
            "description: unknown field",
        ),
        (
            {"type": "Coherence", "judge": "scripted", "rubrics": ["Fluency"]},
            "rubrics: unknown field",
        ),
        (
            {"type": "Coherence", "judge": "scripted", "scale": "0-10"},
            "[0].scale: Coherence is given on likert5 or",
        ),
        (
            {"type": "Bias", "judge": "scripted", "scale": "likert5"},
            "Bias is given on pass/fail or numeric",
        ),
        (
            {"type": "Coherence", "judge": "scripted", "threshold": 0.8},
            "[0].threshold: Coherence goes from 1 to",
        ),
        (
            {
                "type": "LLMJudge",
                "judge": "scripted",
                "rubrics": [{"type": "Coherence", "threshold": "0.7"}],
            },
            "[0].threshold: Coherence goes from 1 to 5 on the scale likert5, found 0.7",
        ),
        (
            {"type": "LLMJudge", "judge": "nobody", "max_tokens": 1},
            "evaluators[0].max_tokens: expected at least 16",
        ),
        (
            {"type": "NLPAccuracy", "embedder": "nobody", "similarity_threshold": 2},
            ".similarity_threshold: expected",
        ),
        (
            {"type": "LLMJudge", "judge": "scripted", "rubrics": ["Coherense"]},
            "rubrics[0]: 'Coherense' is no crit",
        ),
        (
            {"type": "LLMJudge", "judge": "scripted", "rubrics": [{"type": "Bias", "thrshold": 1}]},
            "thrshold",
        ),
        (
            {"type": "LLMJudge", "judge": "scripted", "needs": ["context|nothing"]},
            "'nothing' is no field of a case",
        ),
        (
            {
                "type": "LLMJudge",
                "judge": "scripted",
                "rubrics": [
                    {
                        "criterion_name": "a",
                        "scale": "numeric",
                        "claims": {"listed": " ", "holds": "h"},
                    }
                ],
            },
            "not be blank",
        ),
    ],
)
def test_what_is_wrong_is_refused_at_load(fields: dict[str, Any], said_of_it: str) -> None:
    """With the field, and the choices that there are."""
    with pytest.raises(ConfigurationError) as caught:
        resolve(Evaluator, fields, path="evaluators[0]")
    assert said_of_it in str(caught.value)


def test_the_version_changes_with_the_wording(monkeypatch: pytest.MonkeyPatch) -> None:
    """A score's evaluator version is that of the rubric it was given by, not only of the settings."""
    before = built("Coherence").fingerprint
    assert built("Coherence").fingerprint == before
    assert built("Coherence", threshold=5).fingerprint != before
    changed = {**entry_of("Coherence"), "description": "Another one."}
    monkeypatch.setattr(rubric, "entry_of", lambda name: changed)
    assert built("Coherence").fingerprint != before


def test_editors_complete_the_names_of_criteria() -> None:
    """Where rubrics are listed; and a type of the catalogue takes no description of its own."""
    by_name = {"enum": list(NAMES)}
    assert by_name in Rubric.model_json_schema()["anyOf"]
    assert "description" not in Coherence.model_json_schema()["properties"]


def test_a_retrieval_is_judged_whatever_the_answer_was() -> None:
    """What does not look at the answer is not refused for an empty one."""
    judge = ScriptedJudge(fallback=reply_for("Retrieval"))
    (result,) = results(built("Retrieval", judge), FULL.model_copy(update={"response": ":"}))
    assert result.score == 5
    request: JudgeRequest = judge.requests[0]
    assert list(taken_apart(request.prompt)[1]) == ["input", "context"]
