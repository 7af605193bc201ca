"""LexicalSimilarity and its measures."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.errors import EvaluationSkipped
from agenteval_otel.evaluators import LexicalSimilarity
from agenteval_otel.evaluators.lexical_similarity import sorensen_dice
from agenteval_otel.models import EvaluationResult
from tests.evaluators.support import result_of

ALGORITHMS = ["sorensen-dice", "jaro-winkler", "levenshtein"]
TEXTS = st.text(max_size=40) | st.text("ab c\u0301é\U0001f600\ud83d", max_size=12)


def evaluator(**fields: Any) -> LexicalSimilarity:
    return LexicalSimilarity.load({"criterion_name": "Lex", **fields})


def run(response: Any, reference: Any, context: Any = None, **fields: Any) -> EvaluationResult:
    return result_of(evaluator(**fields), response, ground_truth=reference, context=context)


def score(response: Any, reference: Any, **fields: Any) -> float:
    value = run(response, reference, **fields).score
    assert isinstance(value, float)
    return value


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 2 / 8),
        ({"ngram_size": 1}, 6 / 10),
        ({"ngram_size": 3}, 0.0),
    ],
)
def test_longer_ngrams_share_less(fields: dict[str, Any], expected: float) -> None:
    """Night and nacht share one bigram of four, and three letters of five."""
    assert score("night", "nacht", **fields) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("abcd", "axyz", 1 / 2),  # (1/4 + 1/4 + 1) / 3: a common beginning counts above 0.7 alone
        ("martha", "marhta", 17 / 18 + 3 * 0.1 / 18),
    ],
)
def test_a_common_beginning_counts_where_texts_are_alike(
    first: str, second: str, expected: float
) -> None:
    """Winkler's bonus is for texts that are alike by Jaro's measure."""
    assert score(first, second, algorithm="jaro-winkler") == pytest.approx(expected)


def test_an_emoji_is_one_character_unless_units_are_asked_for() -> None:
    """Two emoji of one block differ wholly; in UTF-16 they share a half, as the original has it."""
    fields = {"algorithm": "levenshtein"}
    assert score("\U0001f600", "\U0001f601", **fields) == 0.0
    assert score("\U0001f600", "\U0001f601", **fields, unit="utf16") == 0.5


def test_reasoning_names_what_was_compared() -> None:
    """The reasoning holds fields, algorithm, the score to four places and both texts."""
    result = run(
        "KITTEN " + "x" * 200, "sitting", algorithm="levenshtein", reference_field="ground_truth"
    )
    assert result.reasoning is not None
    assert result.reasoning.startswith(
        f"levenshtein of response and ground_truth: {result.score:.4f}. "
    )
    assert f"Source: kitten {'x' * 93}. Reference: sitting" in result.reasoning
    assert result.metadata is None


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_long_text_is_cut_and_says_so(algorithm: str) -> None:
    """Only the first characters are compared, before whitespace is touched, and the result tells."""
    result = run("abcX", "abcY", algorithm=algorithm, max_characters=3)
    assert result.score == 1.0
    assert result.metadata == {"comparedCharacters": 3}
    assert "only the first 3 characters" in str(result.reasoning)


def test_of_several_references_the_most_alike_counts() -> None:
    """From the ground truth or from a list elsewhere; the reasoning shows the reference that
    counted.
    """
    result = run("nacht", ["day", "night", "week"])
    assert result.score == score("nacht", "night")
    assert "the most alike of 3" in (result.reasoning or "")
    assert "Reference: night" in (result.reasoning or "")
    assert score("b", None, context={"names": ["a", "b"]}, reference_field="context.names") == 1.0


def test_a_missing_text_is_a_failure_and_a_missing_reference_a_skip() -> None:
    """Without a reference there is nothing to say; what is there and is no text, or no source, is a
    failure.
    """
    with pytest.raises(EvaluationSkipped, match="no ground truth"):
        run("a", None)
    with pytest.raises(EvaluationSkipped, match="nothing at context"):
        run("a", "a", reference_field="context")
    for response, reference, fields in (
        ("a", 42, {}),
        (None, "a", {}),
        ("a", None, {"without_reference": "fail"}),
    ):
        result = run(response, reference, **fields)
        assert (result.status, result.filler, result.error_type) == ("failed", 0, "missing_text")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_below_the_cutoff_the_score_is_zero(algorithm: str) -> None:
    """What is less alike than the cutoff scores 0.0, what is as much alike keeps its score; the
    reasoning tells.
    """
    full = score("night watch", "nacht wache", algorithm=algorithm)
    assert 0 < full < 1
    assert score("night watch", "nacht wache", algorithm=algorithm, score_cutoff=full) == full
    below = run(
        "night watch", "nacht wache", algorithm=algorithm, score_cutoff=min(1.0, full + 0.01)
    )
    assert below.score == 0.0
    assert "below" in str(below.reasoning)
    assert run("aaaa" * 20, "bbbb" * 20, algorithm="levenshtein", score_cutoff=0.9).score == 0.0


@given(
    first=TEXTS,
    second=TEXTS,
    size=st.integers(1, 4),
    keep=st.booleans(),
    unit=st.sampled_from(["character", "utf16"]),
)
@settings(deadline=None, max_examples=30)
def test_any_two_texts_have_a_similarity(
    first: str, second: str, size: int, keep: bool, unit: str
) -> None:
    """It lies in [0, 1], is the same the other way round, and 1 for a text and itself."""
    for algorithm in ALGORITHMS:
        fields = {
            "algorithm": algorithm,
            "ngram_size": size,
            "normalize_whitespace": keep,
            "unit": unit,
        }
        similarity = score(first, second, **fields)
        assert 0.0 <= similarity <= 1.0
        assert similarity == pytest.approx(score(second, first, **fields))
        assert score(first, first, **fields) == 1.0


PAIRED = st.text("abc d\x00\x7f", max_size=30) | st.text("ab\u00e9\U0001f600", max_size=12)


@given(first=PAIRED, second=PAIRED, size=st.sampled_from([1, 2, 3, 4, 9, 10]))
@settings(deadline=None)
def test_sets_of_ngrams_are_those_of_slices(first: str, second: str, size: int) -> None:
    """The measure is that of its definition by slices, for ASCII as for other text."""

    def grams(text: str) -> set[str]:
        return {text[at : at + size] for at in range(max(1, len(text) - size + 1))}

    both, total = len(grams(first) & grams(second)), len(grams(first)) + len(grams(second))
    assert sorensen_dice(first, second, size) == (
        2 * both / total if first and second else float(first == second)
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_two_encodings_of_a_letter_are_one(algorithm: str) -> None:
    """A reference typed on a Mac has its accents as marks; JavaScript's units are compared as such."""
    composed, decomposed = "caf\u00e9 \uac00", "cafe\u0301 \u1100\u1161"
    assert score(composed, decomposed, algorithm=algorithm) == 1.0
    assert score(composed, decomposed, algorithm=algorithm, case_sensitive=True) == 1.0
    assert score(composed, decomposed, algorithm=algorithm, unit="utf16") < 1.0
