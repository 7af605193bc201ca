"""EvaluationRunConfig: both forms, what it refuses, what it selects, and that it dumps what it was given."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel import EvaluationInput, EvaluationRunConfig, run_evaluation_sync
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator, Length, ResponseHealth, RuleBased
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationCriteria
from agenteval_otel.scoring import Aggregation, Scored
from tests.testing.doubles import Fixed, Free, Keeping, Thinking, config_of

INPUT = EvaluationInput(response="Paris is the capital of France.")
ORIGINAL: dict[str, Any] = {
    "evaluatorConfigs": [
        {"type": "RuleBased", "rules": [
            {"criterionName": "IsShort", "config": {"type": "length", "max": 5}},
            {"criterionName": "SaysParis", "sourceTextField": "response",
             "config": {"type": "includes", "keywords": ["Paris"], "expectedOutcome": "all", "caseSensitive": True}},
        ]},
        {"type": "KeywordCoverage", "config": {"criterionName": "Coverage", "expectedKeywords": ["capital", "river"]}},
    ],
    "metadata": {"suite": {"x": [1]}},
}  # fmt: skip


def test_the_originals_form_dumps_as_it_was_given() -> None:
    """``evaluatorConfigs`` loads and dumps unchanged, and what is dumped runs the same evaluators."""
    config = EvaluationRunConfig.model_validate(ORIGINAL)
    dump = config.model_dump(by_alias=True)
    assert json.loads(json.dumps(config.model_dump(mode="json", by_alias=True))) == ORIGINAL
    again = EvaluationRunConfig.model_validate(json.loads(config.model_dump_json(by_alias=True)))
    assert again == config
    assert [evaluator.fingerprint for evaluator in again.evaluators] == [
        evaluator.fingerprint for evaluator in config.evaluators
    ]
    assert dump == ORIGINAL


def test_our_form_dumps_to_an_equivalent_configuration() -> None:
    """A configuration of ours comes back from its JSON with the same evaluators, criteria and choices."""
    config = EvaluationRunConfig(
        evaluators=(RuleBased(rules=[Length(criterion="IsShort", max=5)]), ResponseHealth(tags=("fast",))),
        criteria=(EvaluationCriteria(name="IsShort", weight=2), EvaluationCriteria(name="response_health")),
        aggregation="minimum", tags=("fast",), execution=("inline",), metadata={"a": 1},
    )  # fmt: skip
    for by_alias in (True, False):
        dump = json.loads(config.model_dump_json(by_alias=by_alias))
        assert "evaluatorConfigs" not in dump
        assert EvaluationRunConfig.model_validate(dump) == config


def test_a_dump_shows_no_secret() -> None:
    """What looks like a key is masked in the dump of either form; who asks for the secrets gets them."""
    entry = {"type": "KeywordCoverage", "config": {"criterionName": "k", "expectedKeywords": ["a"]}}
    config = EvaluationRunConfig.model_validate(
        {"evaluatorConfigs": [entry], "metadata": {"api_key": "sk-very-secret"}}
    )
    assert "sk-very-secret" not in config.model_dump_json(by_alias=True)
    assert "sk-very-secret" in config.model_dump_json(by_alias=True, context={"secrets": True})


def test_later_changes_do_not_matter() -> None:
    """Whoever changes the mappings that a configuration was made of does not change the configuration or its dump."""
    given_entries = json.loads(json.dumps(ORIGINAL))
    config = EvaluationRunConfig.model_validate(given_entries)
    given_entries["evaluatorConfigs"][0]["rules"].clear()
    assert config.model_dump(by_alias=True)["evaluatorConfigs"] == ORIGINAL["evaluatorConfigs"]


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({"evaluatorConfigs": []}, "evaluatorConfigs", "at least one"),
        ({"evaluatorConfigs": "RuleBased"}, "evaluatorConfigs", "list"),
        ({**ORIGINAL, "evaluators": [ResponseHealth()]}, "evaluators", "not both"),
        ({"evaluatorConfigs": [{"type": "KeywordCoverage", "config": None}]}, "evaluatorConfigs[0].config", "NoneType"),
        ({"evaluatorConfigs": [{"type": "RuleBasd", "rules": []}]}, "evaluatorConfigs[0]", "'RuleBased'"),
        ({"evaluatorConfigs": [{}]}, "evaluatorConfigs[0]", "'type' is missing"),
        ({"evaluatorConfigs": [{"type": "Nope"}, {"type": "Nope2"}]}, "evaluatorConfigs[0]", "evaluatorConfigs[1]"),
        ({"evaluators": [Free()], "criteria": [{"name": "a"}, {"name": "a"}]}, "criteria", "twice"),
        ({"evaluators": [Free()], "criteria": [{"name": "a", "weight": -1}]}, "criteria[0].weight", "at least 0"),
        ({"evaluators": [Free()], "criteria": [{"name": "a", "weight": float("nan")}]}, "criteria[0].weight", "finite"),
        ({"evaluators": [Free()], "criteria": [{"name": "a", "wieght": 1}]}, "criteria[0].wieght", "'weight'"),
        ({"evaluators": [Free()], "criteria": [{}]}, "criteria[0].name", "missing"),
        ({"evaluators": [Free()], "agregation": "minimum"}, "agregation", "'aggregation'"),
        ({"evaluators": [Free()], "aggregation": "mean"}, "aggregation", "weighted_mean"),
        ({"evaluators": [Free()], "execution": ["cheap"]}, "execution[0]", "'inline', 'thread', 'process' or 'async'"),
        ({"evaluators": [Free(tags=("safety",))], "tags": ["safty"]}, "tags[0]", "'safety'"),
        ({"evaluators": [Free()], "tags": ["any"]}, "tags[0]", "known: none"),
        ({"evaluators": [Free()], "execution": ["async"]}, "execution", "Free:fixed (execution inline)"),
        ({"evaluators": [Free(), {"type": "KeywordCoverage", "criterion_name": "k", "expected_keywords": ["a"],
                                  "weight": -1}]}, "evaluators[1].weight", "at least 0"),
        ({"evaluators": [Evaluator()]}, "evaluators[0]", "does not say what it scores"),
        ({"evaluators": [Free()], "storageProvider": {"type": "nowhere"}}, "storage", "json_file"),
        ({"evaluators": [Free()], "storageProvider": 7}, "storage", "found int"),
        ({"evaluators": [Free()], "plugins": ["no_such_module_of_ours"]}, "plugins[0]", "cannot be imported"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(fields: dict[str, Any], path: str, message: str) -> None:
    """Both ways of building it name the field and the choices, before anything runs."""
    for build in (lambda: EvaluationRunConfig(**fields), lambda: EvaluationRunConfig.model_validate(fields)):
        with pytest.raises(ConfigurationError) as caught:
            build()
        assert caught.value.path == path
        assert message in str(caught.value)


def test_the_originals_form_takes_criteria_as_they_are() -> None:
    """There the first of two criteria counts, and a negative weight is used; in ours an input with such is refused."""
    twice = EvaluationInput.model_validate({
        "response": "Paris", "criteria": [{"name": "Coverage", "scale": "numeric", "weight": 3},
                                          {"name": "Coverage", "scale": "binary"},
                                          {"name": "SaysParis", "scale": "binary", "weight": -1}],
    })  # fmt: skip
    aggregated = run_evaluation_sync(twice, EvaluationRunConfig.model_validate(ORIGINAL))
    assert [(result.criterion_name, result.score) for result in aggregated.results] == [
        ("SaysParis", True),
        ("Coverage", 0),
    ]
    assert aggregated.overall_score is None
    with pytest.raises(ConfigurationError, match=r"twice.*criteria\[2\].weight"):
        run_evaluation_sync(twice, config_of(Free()))


@pytest.mark.parametrize("given_input", [{"response": "x"}, "x", None])
def test_what_is_no_input_is_refused(given_input: Any) -> None:
    """A mapping is not yet an input: the message says what was expected."""
    with pytest.raises(ConfigurationError, match="expected an EvaluationInput"):
        run_evaluation_sync(given_input, config_of(Free()))


TAGGED = (Free(criterion_name="a", tags=("safety", "fast")), Fixed(criterion_name="b", tags=("safety",)),
          Thinking(criterion_name="c"))  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "runs", "left_out"),
    [
        ({}, "abc", []),
        ({"execution": ["inline", "thread"]}, "ab", ["Thinking:c (execution async)"]),
        ({"execution": ["async"]}, "c", ["Free:a (execution inline)", "Fixed:b (execution thread)"]),
        ({"tags": ["safety"]}, "ab", ["Thinking:c (no tags)"]),
        ({"tags": ["fast"]}, "a", ["Fixed:b (tags safety)", "Thinking:c (no tags)"]),
        ({"tags": ["safety"], "execution": ["thread"]}, "b",
         ["Free:a (execution inline)", "Thinking:c (execution async)"]),
    ],
)  # fmt: skip
def test_a_run_takes_what_is_selected(fields: dict[str, Any], runs: str, left_out: list[str]) -> None:
    """By execution and by tag; what is left out is reported in the configuration and in the result."""
    config = EvaluationRunConfig(evaluators=TAGGED, **fields)
    assert [str(item) for item in config.selection.left_out] == left_out
    aggregated = run_evaluation_sync(INPUT, config)
    assert [result.criterion_name for result in aggregated.results] == list(runs)
    assert (aggregated.evaluation_config_snapshot or {}).get("leftOut", []) == left_out


def test_tags_are_no_part_of_the_score() -> None:
    """Tags change neither the fingerprint nor the dump's meaning; what is no list of words is refused."""
    plain, tagged = ResponseHealth(), ResponseHealth(tags=("a",))
    assert plain.fingerprint == tagged.fingerprint
    for tags in ("a", (1,)):
        with pytest.raises(ConfigurationError):
            ResponseHealth(tags=tags)


class Median(Aggregation, type="median_of_test_config"):
    """The score in the middle."""

    def combine(self, scored: Any) -> float | None:
        ordered: list[Scored] = sorted(scored, key=lambda item: item.normalized)
        return ordered[len(ordered) // 2].normalized if ordered else None


def test_the_overall_score_is_made_by_configuration() -> None:
    """Strategies are chosen by name, mapping or instance, the user's own too; the snapshot says which."""
    evaluators = [Free(criterion_name=name, value=value) for name, value in (("a", 0.1), ("b", 0.4), ("c", 1.0))]
    for aggregation, expected in (
        ("weighted_mean", 0.5), ({"type": "minimum"}, 0.1), ("median_of_test_config", 0.4), (Median(), 0.4),
    ):  # fmt: skip
        aggregated = run_evaluation_sync(INPUT, config_of(*evaluators, aggregation=aggregation))
        assert aggregated.overall_score == pytest.approx(expected)
    assert (aggregated.evaluation_config_snapshot or {})["aggregation"] == "median_of_test_config"


class Raising(Aggregation, type="raising_of_test_config"):
    """Breaks."""

    def combine(self, scored: Any) -> float | None:
        raise ZeroDivisionError("mine")


def test_a_strategy_that_raises_costs_the_overall_score_only() -> None:
    """The results stand, the error is told in both places that the originals have for it."""
    aggregated = run_evaluation_sync(INPUT, config_of(Free(), aggregation=Raising()))
    assert (aggregated.overall_score, aggregated.results[0].score) == (None, 0.5)
    assert [error.evaluator_type for error in aggregated.run_errors or ()] == ["aggregation:raising_of_test_config"]
    assert aggregated.metadata["errors"][0]["message"] == "ZeroDivisionError: mine"


def test_storage_may_be_named(tmp_path: Path) -> None:
    """A storage provider by its type, as in settings; and an object of the program's has no place in a dump."""
    file = tmp_path / "found.jsonl"
    config = config_of(ResponseHealth(), storage={"type": "json_file", "path": str(file)})
    aggregated = run_evaluation_sync(INPUT, config)
    assert aggregated.run_errors is None
    assert AggregatedEvaluationResult.model_validate_json(file.read_text()).overall_score == aggregated.overall_score
    assert EvaluationRunConfig.model_validate(config.model_dump(by_alias=True)) == config
    assert config_of(ResponseHealth(), storage=Keeping()).model_dump()["storage"] is None


PLUGIN = """
from agenteval_otel.evaluators import CriterionEvaluator
from agenteval_otel.models import Score

class Shouting(CriterionEvaluator, type="Shouting"):
    '''Whether the answer shouts.'''
    criterion_name: str = "calm"
    def score(self, evaluation_input):
        return Score(value=not evaluation_input.response_text.isupper())
"""


def test_custom_evaluators_come_from_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that the configuration lists brings its evaluators, as configurations in either form."""
    (tmp_path / "shouting_of_test_config.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = {"plugins": ["shouting_of_test_config"], "evaluators": [{"type": "Shouting"}]}
    try:
        assert run_evaluation_sync(INPUT, EvaluationRunConfig.model_validate(config)).overall_score == 1.0
        original = {"evaluatorConfigs": [{"type": "Shouting", "config": {"criterionName": "calm"}}]}
        loud = EvaluationInput(response="NO")
        assert run_evaluation_sync(loud, EvaluationRunConfig.model_validate(original)).overall_score == 0.0
    finally:
        Evaluator.registry.pop("Shouting", None)
        sys.modules.pop("shouting_of_test_config", None)


def test_custom_evaluators_come_from_listed_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package's entry point is loaded when, and only when, the configuration lists its name."""
    (tmp_path / "entered_of_test_config.py").write_text(PLUGIN.replace("Shouting", "Entered"))
    information = tmp_path / "entered-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: entered\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[agenteval_otel.evaluators]\nmine = entered_of_test_config\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        with pytest.raises(ConfigurationError, match="unknown evaluator type 'Entered'"):
            EvaluationRunConfig(evaluators=[{"type": "Entered"}])  # type: ignore[list-item]
        actual = EvaluationRunConfig(plugins=("mine",), evaluators=["Entered"])  # type: ignore[list-item]
        assert run_evaluation_sync(INPUT, actual).overall_score == 1.0
    finally:
        Evaluator.registry.pop("Entered", None)
        sys.modules.pop("entered_of_test_config", None)


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


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(NAMES, JUNK, max_size=4), st.lists(JUNK, max_size=3), st.booleans())
def test_any_configuration_loads_or_says_what_is_wrong(fields: dict[str, Any], entries: list[Any], ours: bool) -> None:
    """No configuration, however wrong, raises anything but `ConfigurationError`."""
    wanted = {**fields, ("evaluators" if ours else "evaluatorConfigs"): entries}
    try:
        config = EvaluationRunConfig.model_validate(wanted)
    except ConfigurationError:
        return
    assert config.evaluators


TEXTS = st.sampled_from(["", " ", "\ud800", "\u202e\x00", "e\u0301" * 9, "\U0001f9d1\u200d\U0001f680", "a b", "{}"])
VALUES = st.recursive(TEXTS | st.none() | st.booleans() | st.floats() | st.text(max_size=9),
                      lambda inner: st.lists(inner, max_size=2) | st.dictionaries(
                          st.sampled_from(["role", "contentParts", "type", "text"]), inner, max_size=3),
                      max_leaves=6)  # fmt: skip
SCALES = st.sampled_from(["binary", "pass/fail", "likert5", "numeric", "string", "own"])


@settings(max_examples=200, deadline=None)
@given(
    response=VALUES, ground_truth=VALUES, scale=SCALES, missing=st.booleans(),
    weight=st.none() | st.floats(allow_nan=False, allow_infinity=False),
)  # fmt: skip
def test_any_input_gives_scores_or_errors(
    response: Any, ground_truth: Any, scale: str, missing: bool, weight: float | None
) -> None:
    """Whatever the answer holds, and where it holds nothing: a finite score, an error or a skip, and JSON of it."""
    config = EvaluationRunConfig.model_validate(ORIGINAL)
    names = ("IsShort", "SaysParis", "Coverage")
    fields = {"groundTruth": ground_truth, "criteria": [{"name": n, "scale": scale, "weight": weight} for n in names]}
    evaluation_input = EvaluationInput.model_validate(fields if missing else {"response": response, **fields})
    aggregated = run_evaluation_sync(evaluation_input, config)
    assert aggregated.overall_score is None or 0.0 <= aggregated.overall_score <= 1.0
    for result in aggregated.results:
        assert result.status == "scored" or (result.score is None and (result.error or result.skip_reason))
        if missing:
            assert result.status == "failed"
    json.dumps(aggregated.original_json())


TEN_MB = 10_000_000
LARGE = {
    "RuleBased": {"rules": [
        {"criterion": "a", "type": "length", "min": 1},
        {"criterion": "b", "type": "includes", "keywords": ["needle"], "expectedOutcome": "any"},
        {"criterion": "c", "type": "json"},
        {"criterion": "d", "type": "regex", "pattern": "needle", "expectedOutcome": "match"},
    ]},
    "KeywordCoverage": {"criterion_name": "a", "expected_keywords": ["needle", "c++"]},
    "LexicalSimilarity": {"criterion_name": "a"},
    "Sentiment": {"criterion_name": "a"},
    "Toxicity": {"criterion_name": "a", "toxic_terms": ["needle", "other"]},
    "ToolUsage": {"rules": [{"criterion_name": "a", "expected_tool_name": "t"}]},
    "NLPAccuracy": {"criterion_name": "a"},
    "ResponseHealth": {},
}  # fmt: skip


@pytest.mark.parametrize("kind", [kind for kind in LARGE if kind in Evaluator.registry])
@pytest.mark.parametrize("unit", ["word ", "\u0436\U0001f600"])
def test_texts_of_ten_megabytes_end(kind: str, unit: str) -> None:
    """Ten million characters give a score, a skip or an error within the lanes' time limits, and no surprise."""
    text = unit * (TEN_MB // len(unit))
    config = EvaluationRunConfig(evaluators=[{"type": kind, "timeout_s": 20, **LARGE[kind]}])  # type: ignore[list-item]
    aggregated = run_evaluation_sync(EvaluationInput(response=text, ground_truth=text), config)
    assert aggregated.results
    assert all(not result.raised or result.error_type == "timeout" for result in aggregated.results), aggregated.results
