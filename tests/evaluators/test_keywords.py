"""KeywordCoverage."""

from __future__ import annotations

from typing import Any

import pytest

from agenteval_otel.evaluators import KeywordCoverage
from agenteval_otel.models import EvaluationResult
from tests.evaluators.support import result_of


def run(
    response: Any, ground_truth: Any = None, context: Any = None, **fields: Any
) -> EvaluationResult:
    evaluator = KeywordCoverage.load({"criterion_name": "Kw", **fields})
    return result_of(evaluator, response, ground_truth=ground_truth, context=context)


WORDS = [
    ("the cat sat", "cat", True), ("concatenate", "cat", False), ("cat_food", "cat", False), ("cat-food", "cat", True),
    ("naïve", "na", False), ("Café au lait", "café", True), ("Cafe\u0301 au lait", "café", True),
    ("caf\u00e9", "cafe", False), ("cafe\u0301", "cafe", False), ("Москва большая", "москва", True),
    ("Москвабольшая", "москва", False), ("costs $5 now", "$5", True), ("costs $50", "$5", False),
    ("we use C++11", "c++", True), ("a (draft) text", "(draft", True), ("axb", "a.b", False),
    ("今日は天気がいい", "天気", True), ("これはAIです", "ai", True),
    ("これはAIRです", "ai", False), ("날씨가 좋다", "날씨", True),
    ("ฉันรักแมวมาก", "แมว", True), ("हिन्दी भाषा", "हिन", False), ("हिन्दी भाषा", "हिन्दी", True),
    ("I ❤️ it", "❤", True), ("New \n York", "new york", True),
    ("f****", "f***", True), ("xf***", "f***", False), ("you💩you", "💩", True), ("shut upward", "shut up", False),
    ("Straße", "STRASSE", False),
]  # fmt: skip


@pytest.mark.parametrize(("text", "keyword", "actual"), WORDS)
def test_words_end_where_their_script_ends_them(text: str, keyword: str, actual: bool) -> None:
    """Letters, marks, digits and underscores go on; punctuation does not; scripts without spaces
    have no borders.
    """
    assert run(text, expected_keywords=[keyword]).score == float(actual)
    many = [keyword, *(f"other{number}" for number in range(500))]
    assert run(text, expected_keywords=many).score == float(actual) / 501


def test_the_score_is_the_share_that_was_found() -> None:
    """Found and missed keywords are named, counted and kept as metadata; a miss has a reason."""
    result = run("Alpha and beta", expected_keywords=["alpha", "Beta", "gamma"])
    assert result.score == pytest.approx(2 / 3)
    assert result.metadata == {"foundKeywords": ["alpha", "beta"], "missedKeywords": ["gamma"]}
    assert result.reason_code == "missing_keyword"
    assert (
        result.reasoning
        == "2 of 3 keywords (67%). Found: alpha, beta. Missed: gamma. Text: alpha and beta"
    )
    assert run("alpha", expected_keywords=["alpha"]).reason_code is None


def test_words_may_be_parts_of_words_on_request() -> None:
    """Without whole words a keyword may occur anywhere."""
    assert run("concatenate", expected_keywords=["cat"], matchWholeWord=False).score == 1.0


@pytest.mark.parametrize(("normalized", "share"), [(True, 1.0), (False, 0.0)])
def test_whitespace_in_keywords_counts_as_in_the_text(normalized: bool, share: float) -> None:
    """A keyword with two spaces or a line break is found where the text has one space, unless
    whitespace counts.
    """
    keywords = ["hello  world", "good\nday"]
    result = run(
        "Hello world, good day",
        expected_keywords=keywords,
        normalize_whitespace_for_source=normalized,
    )
    assert result.score == share


def test_keywords_may_come_with_the_input() -> None:
    """Ground truth and context give lists, of which the texts count, or text that is split or taken
    whole.
    """
    source = {"keywords_source_field": "groundTruth"}
    assert run("a c", ground_truth="a, b\nc", **source).score == pytest.approx(2 / 3)
    assert run("a c", ground_truth=["a", 7, "b"], **source).score == 0.5
    assert (
        run(
            "say a, b now", ground_truth=" a, b ", ground_truth_keyword_mode="exact", **source
        ).score
        == 1.0
    )
    assert run("a", context={"k": ["a"]}, keywords_source_field="context.k").score == 1.0


@pytest.mark.parametrize(
    "fields",
    [
        {"keywords_source_field": "groundTruth"},
        {"keywords_source_field": "groundTruth", "ground_truth": ["", 1]},
        {"keywords_source_field": "context.k", "context": {"k": {"a": 1}}},
    ],
)
def test_an_input_without_keywords_is_a_failure(fields: dict[str, Any]) -> None:
    """Keywords that were to come with the input are not there."""
    result = run("a", **fields)
    assert (result.score, result.error_type) == (None, "missing_keywords")
