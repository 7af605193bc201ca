"""EvaluationRunConfig: both forms, what it refuses, what it selects, and that it dumps what it was
given.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel import EvaluationInput, EvaluationRunConfig, run_evaluation_sync
from agenteval_otel.engine.aggregation import Aggregation, Scored
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import (
    CriterionEvaluator,
    Evaluator,
    Length,
    ResponseHealth,
    RuleBased,
)
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationCriteria
from tests.testing.doubles import Fixed, Free, Keeping, Thinking, config_of

INPUT = EvaluationInput(response="Paris is the capital of France.")
ORIGINAL: dict[str, Any] = {
    "evaluatorConfigs": [
        {
            "type": "RuleBased",
            "rules": [
                {"criterionName": "IsShort", "config": {"type": "length", "max": 5}},
                {
                    "criterionName": "SaysParis",
                    "sourceTextField": "response",
                    "config": {
                        "type": "includes",
                        "keywords": ["Paris"],
                        "expectedOutcome": "all",
                        "caseSensitive": True,
                    },
                },
            ],
        },
        {
            "type": "KeywordCoverage",
            "config": {"criterionName": "Coverage", "expectedKeywords": ["capital", "river"]},
        },
    ],
    "metadata": {"suite": {"x": [1]}},
}


def test_the_originals_form_dumps_as_it_was_given() -> None:
    """``evaluatorConfigs`` loads and dumps unchanged, and a later change of what it was made of
    does not matter.
    """
    entries = json.loads(json.dumps(ORIGINAL))
    config = EvaluationRunConfig.model_validate(entries)
    entries["evaluatorConfigs"][0]["rules"].clear()
    assert config.model_dump(by_alias=True) == ORIGINAL
    assert json.loads(config.model_dump_json(by_alias=True)) == ORIGINAL
    again = EvaluationRunConfig.model_validate(ORIGINAL)
    assert again == config
    assert [part.fingerprint for part in again.evaluators] == [
        part.fingerprint for part in config.evaluators
    ]


def test_our_form_dumps_to_an_equivalent_configuration() -> None:
    """A configuration of ours comes back from its JSON with the same evaluators, criteria and
    choices.
    """
    config = EvaluationRunConfig(
        evaluators=(
            RuleBased(rules=[Length(criterion="IsShort", max=5)]),
            ResponseHealth(tags=("fast",)),
        ),
        criteria=(
            EvaluationCriteria(name="IsShort", weight=2),
            EvaluationCriteria(name="response_health"),
        ),
        aggregation="minimum",
        tags=("fast",),
        execution=("inline",),
        metadata={"a": 1},
    )
    for by_alias in (True, False):
        dump = json.loads(config.model_dump_json(by_alias=by_alias))
        assert "evaluatorConfigs" not in dump
        assert EvaluationRunConfig.model_validate(dump) == config


def test_a_dump_shows_no_secret() -> None:
    """What looks like a key is masked in the dump of either form; who asks for the secrets gets
    them.
    """
    entry = {"type": "KeywordCoverage", "config": {"criterionName": "k", "expectedKeywords": ["a"]}}
    config = EvaluationRunConfig.model_validate(
        {"evaluatorConfigs": [entry], "metadata": {"api_key": "sk-very-secret"}}
    )
    assert "sk-very-secret" not in config.model_dump_json(by_alias=True)
    assert "sk-very-secret" in config.model_dump_json(by_alias=True, context={"secrets": True})


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({}, "evaluators", "at least one"),
        ({"evaluators": "ResponseHealth"}, "evaluators", "list"),
        ({"evaluators": [ResponseHealth(), 7]}, "evaluators[1]", "found int"),
        ({"evaluatorConfigs": []}, "evaluatorConfigs", "at least one"),
        ({"evaluatorConfigs": "RuleBased"}, "evaluatorConfigs", "list"),
        ({**ORIGINAL, "evaluators": [ResponseHealth()]}, "evaluators", "not both"),
        (
            {"evaluatorConfigs": [{"type": "KeywordCoverage", "config": None}]},
            "evaluatorConfigs[0].config",
            "NoneType",
        ),
        (
            {"evaluatorConfigs": [{"type": "RuleBasd", "rules": []}]},
            "evaluatorConfigs[0]",
            "'RuleBased'",
        ),
        ({"evaluatorConfigs": [{}]}, "evaluatorConfigs[0]", "'type' is missing"),
        (
            {"evaluatorConfigs": [{"type": "Nope"}, {"type": "Nope2"}]},
            "evaluatorConfigs[0]",
            "evaluatorConfigs[1]",
        ),
        ({"evaluatorConfigs": [{"type": "RuleBased"}]}, "evaluatorConfigs[0].rules", "missing"),
        ({"evaluators": [Free()], "criteria": [{"name": "a"}, {"name": "a"}]}, "criteria", "twice"),
        (
            {"evaluators": [Free()], "criteria": [{"name": "a", "weight": -1}]},
            "criteria[0].weight",
            "at least 0",
        ),
        (
            {"evaluators": [Free()], "criteria": [{"name": "a", "wieght": 1}]},
            "criteria[0].wieght",
            "'weight'",
        ),
        ({"evaluators": [Free()], "criteria": [{}]}, "criteria[0].name", "missing"),
        (
            {
                "evaluators": [Free()],
                "criteria": [{"name": "a", "scale": "likert5", "threshold": 0.5}],
            },
            "criteria[0].threshold",
            "likert5', 1 to 5",
        ),
        (
            {"evaluators": [{"type": "Contains", "substrings": ["a"], "threshold": 1.5}]},
            "evaluators[0].threshold",
            "the threshold 1.5 lies outside of the scale 'numeric', 0 to 1",
        ),
        ({"evaluators": [Free()], "agregation": "minimum"}, "agregation", "'aggregation'"),
        ({"evaluators": [Free()], "aggregation": "mean"}, "aggregation", "weighted_mean"),
        (
            {"evaluators": [Free()], "execution": ["cheap"]},
            "execution[0]",
            "'inline', 'thread', 'process' or 'async'",
        ),
        ({"evaluators": [Free(tags=("safety",))], "tags": ["safty"]}, "tags[0]", "'safety'"),
        ({"evaluators": [Free()], "tags": ["any"]}, "tags[0]", "Known: none"),
        (
            {"evaluators": [Free()], "execution": ["async"]},
            "execution",
            "Free:fixed (execution inline)",
        ),
        (
            {"evaluators": [Free()], "escalation": {"baseline_rate": 0.5}},
            "escalation",
            "no evaluator asks a model, so none waits: name those that do",
        ),
        ({"evaluators": [Free()], "escalation": 0.5}, "escalation", "expected a mapping"),
        ({"evaluators": [Evaluator()]}, "evaluators[0]", "no method evaluate of its own"),
        ({"evaluators": [Free()], "storageProvider": {"type": "nowhere"}}, "storage", "json_file"),
        ({"evaluators": [Free()], "storageProvider": 7}, "storage", "found int"),
        (
            {"evaluators": [Free()], "plugins": ["no_such_module_of_ours"]},
            "plugins[0]",
            "cannot be imported",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    fields: dict[str, Any], path: str, message: str
) -> None:
    """Both ways of building it name the field and the choices, before anything runs."""
    for build in (
        lambda: EvaluationRunConfig(**fields),
        lambda: EvaluationRunConfig.model_validate(fields),
    ):
        with pytest.raises(ConfigurationError) as caught:
            build()
        assert caught.value.path == path
        assert message in str(caught.value)


def test_the_originals_form_takes_criteria_as_they_are() -> None:
    """There the first of two criteria counts, and a negative weight is used; in ours an input with
    such is refused.
    """
    twice = EvaluationInput.model_validate(
        {
            "response": "Paris",
            "criteria": [
                {"name": "Coverage", "scale": "numeric", "weight": 3},
                {"name": "Coverage", "scale": "binary"},
                {"name": "SaysParis", "scale": "binary", "weight": -1},
            ],
        }
    )
    aggregated = run_evaluation_sync(twice, EvaluationRunConfig.model_validate(ORIGINAL))
    assert [(result.criterion_name, result.score) for result in aggregated.results] == [
        ("SaysParis", True),
        ("Coverage", 0),
    ]
    assert aggregated.overall_score is None
    with pytest.raises(ConfigurationError, match=r"twice.*criteria\[2\].weight"):
        run_evaluation_sync(twice, config_of(Free()))


@pytest.mark.parametrize("value", [{"reponse": "x"}, "x", 7])
def test_what_is_no_input_or_no_configuration_is_refused(value: Any) -> None:
    """A mapping is not yet a configuration, and no input with other fields: the message says what
    was expected.
    """
    with pytest.raises(
        ConfigurationError, match=r"expected an EvaluationInput|did you mean 'response'"
    ):
        run_evaluation_sync(value, config_of(Free()))
    with pytest.raises(
        ConfigurationError, match=r"expected an EvaluationRunConfig, found .*model_validate"
    ):
        run_evaluation_sync(INPUT, value)


TAGGED = (
    Free(criterion_name="a", tags=("safety", "fast")),
    Fixed(criterion_name="b", tags=("safety",)),
    Thinking(criterion_name="c"),
)


@pytest.mark.parametrize(
    ("fields", "runs", "left_out"),
    [
        ({}, "abc", []),
        ({"execution": ["inline", "thread"]}, "ab", ["Thinking:c (execution async)"]),
        (
            {"execution": ["async"]},
            "c",
            ["Free:a (execution inline)", "Fixed:b (execution thread)"],
        ),
        ({"tags": ["safety"]}, "ab", ["Thinking:c (tags none)"]),
        ({"tags": ["fast"]}, "a", ["Fixed:b (tags safety)", "Thinking:c (tags none)"]),
        (
            {"tags": ["safety"], "execution": ["thread"]},
            "b",
            ["Free:a (execution inline)", "Thinking:c (execution async)"],
        ),
    ],
)
def test_a_run_takes_what_is_selected(
    fields: dict[str, Any], runs: str, left_out: list[str]
) -> None:
    """By execution and by tag; what is left out is reported in the configuration and in the result."""
    config = EvaluationRunConfig(evaluators=TAGGED, **fields)
    assert [str(item) for item in config.selection.left_out] == left_out
    aggregated = run_evaluation_sync(INPUT, config)
    assert [result.criterion_name for result in aggregated.results] == list(runs)
    assert (aggregated.evaluation_config_snapshot or {}).get("leftOut", []) == left_out


class Median(Aggregation, type="median_of_test_config"):
    """The score in the middle."""

    def combine(self, scored: Any) -> float | None:
        ordered: list[Scored] = sorted(scored, key=lambda item: item.normalized)
        return ordered[len(ordered) // 2].normalized if ordered else None


def test_the_overall_score_is_made_by_configuration() -> None:
    """Strategies are chosen by name, mapping or instance, the user's own too; the snapshot says
    which.
    """
    evaluators = [
        Free(criterion_name=name, value=value)
        for name, value in (("a", 0.1), ("b", 0.4), ("c", 1.0))
    ]
    for aggregation, expected in (
        ("weighted_mean", 0.5),
        ({"type": "minimum"}, 0.1),
        ("median_of_test_config", 0.4),
        (Median(), 0.4),
    ):
        aggregated = run_evaluation_sync(INPUT, config_of(*evaluators, aggregation=aggregation))
        assert aggregated.overall_score == pytest.approx(expected)
    assert (aggregated.evaluation_config_snapshot or {})["aggregation"] == "median_of_test_config"


class Unreadable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class Raising(Aggregation, type="raising_of_test_config"):
    """Breaks."""

    def combine(self, scored: Any) -> float | None:
        raise Unreadable


def test_a_strategy_that_raises_costs_the_overall_score_only() -> None:
    """The results stand; the error is in both places that the originals have for it, whatever its
    text does.
    """
    aggregated = run_evaluation_sync(INPUT, config_of(Free(), aggregation=Raising()))
    assert (aggregated.overall_score, aggregated.results[0].score) == (None, 0.5)
    assert [error.evaluator_type for error in aggregated.run_errors or ()] == [
        "aggregation:raising_of_test_config"
    ]
    assert (
        aggregated.metadata["errors"][0]["message"] == "Unreadable: (its message could not be read)"
    )


def test_storage_may_be_named(tmp_path: Path) -> None:
    """A storage provider by its type, as in settings; and an object of the program's has no place
    in a dump.
    """
    file = tmp_path / "found.jsonl"
    config = config_of(ResponseHealth(), storage={"type": "json_file", "path": str(file)})
    aggregated = run_evaluation_sync(INPUT, config)
    assert aggregated.run_errors is None
    assert (
        AggregatedEvaluationResult.model_validate_json(file.read_text()).overall_score
        == aggregated.overall_score
    )
    assert EvaluationRunConfig.model_validate(config.model_dump(by_alias=True)) == config
    of_the_program = config_of(ResponseHealth(), storage=Keeping())
    assert of_the_program.model_dump()["storage"] is None
    snapshot = run_evaluation_sync(INPUT, of_the_program).evaluation_config_snapshot or {}
    assert snapshot["storageProviderType"] == "external"


class Shouting(CriterionEvaluator, type="ShoutingOfTestConfig"):
    """Whether the answer does not shout."""

    criterion_name: str = "calm"

    def score(self, evaluation_input: EvaluationInput) -> bool:
        return not evaluation_input.response_text.isupper()


@pytest.mark.parametrize(
    "fields",
    [
        {"evaluators": [{"type": "ShoutingOfTestConfig"}], "plugins": [__name__]},
        {
            "evaluatorConfigs": [
                {"type": "ShoutingOfTestConfig", "config": {"criterionName": "calm"}}
            ]
        },
    ],
)
def test_custom_evaluators_are_taken_in_either_form(fields: dict[str, Any]) -> None:
    """By their type, once a plugin has registered it."""
    config = EvaluationRunConfig.model_validate(fields)
    assert run_evaluation_sync(INPUT, config).overall_score == 1.0
    assert run_evaluation_sync(EvaluationInput(response="NO"), config).overall_score == 0.0


NAMES = st.sampled_from(["type", "config", "rules", "criterionName", "expectedKeywords", "evaluatorConfigs", "metadata",
                         "criteria", "name", "weight", "scale", "tags", "aggregation", "pattern"])  # fmt: skip
WORDS = st.sampled_from(
    ["RuleBased", "KeywordCoverage", "ResponseHealth", "Func", "regex", "(a+)+$", "", "\ud800", "a"]
)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(NAMES, JUNK, max_size=4), st.lists(JUNK, max_size=3), st.booleans())
def test_any_configuration_loads_or_says_what_is_wrong(
    fields: dict[str, Any], entries: list[Any], ours: bool
) -> None:
    """No configuration, however wrong, raises anything but `ConfigurationError`."""
    wanted = {**fields, ("evaluators" if ours else "evaluatorConfigs"): entries}
    try:
        config = EvaluationRunConfig.model_validate(wanted)
    except ConfigurationError:
        return
    assert config.evaluators


LARGE: list[dict[str, Any]] = [
    {
        "type": "RuleBased",
        "rules": [
            {
                "criterion": "b",
                "type": "includes",
                "keywords": ["needle"],
                "expectedOutcome": "any",
            },
            {"criterion": "c", "type": "json"},
            {"criterion": "d", "type": "regex", "pattern": "needle", "expectedOutcome": "match"},
        ],
    },
    {"type": "KeywordCoverage", "criterion_name": "a", "expected_keywords": ["needle", "c++"]},
    {"type": "LexicalSimilarity", "criterion_name": "a"},
    {"type": "Sentiment", "criterion_name": "a"},
    {"type": "Toxicity", "criterion_name": "a", "toxic_terms": ["needle", "other"]},
    {"type": "NLPAccuracy", "criterion_name": "a"},
    {"type": "ResponseHealth"},
]


@pytest.mark.parametrize("entry", LARGE, ids=lambda entry: entry["type"])
def test_texts_of_megabytes_end(entry: dict[str, Any]) -> None:
    """Four million characters, 16 MB in memory, give a score, a skip or a timeout."""
    text = "word \u0436\U0001f600 " * 500_000
    config = EvaluationRunConfig(evaluators=[{"timeout_s": 20, **entry}])  # type: ignore[list-item]
    aggregated = run_evaluation_sync(EvaluationInput(response=text, ground_truth=text), config)
    assert aggregated.results
    assert all(
        not result.raised or result.error_type == "timeout" for result in aggregated.results
    ), aggregated.results
