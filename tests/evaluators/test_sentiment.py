"""Sentiment: its arithmetic, its words and its lexica."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Sentiment, sentiment
from agenteval_otel.evaluators.sentiment import (
    AFINN,
    BUILTIN,
    agentdock_tokens,
    load_lexicon,
    tokens,
)
from agenteval_otel.models import EvaluationInput, EvaluationResult
from tests.evaluators.support import result_of


def evaluator(**fields: Any) -> Sentiment:
    return Sentiment.load({"criterion_name": "Sent", **fields})


def run(response: Any, **fields: Any) -> EvaluationResult:
    return result_of(evaluator(**fields), response)


def raw(text: str, **fields: Any) -> Any:
    return run(text, output_type="rawScore", **fields).score


def test_the_words_are_summed_up() -> None:
    """The sum of the words' values over the number of words, moved to [0, 1]; the words are told,
    last one first.
    """
    result = run("The service was good, the food terrible!")
    assert result.metadata == {
        "rawScore": -1,
        "comparativeScore": -1 / 7,
        "positiveWords": ["good"],
        "negativeWords": ["terrible"],
    }
    assert result.score == result.normalized == pytest.approx((5 - 1 / 7) / 10)
    assert (
        result.reasoning
        == "raw score -1 of 7 words, comparative -0.1429. Positive: good. Negative: terrible"
    )


def test_each_output_has_its_scale() -> None:
    """A share is numeric; a sum and a category are on scales of their own, so that no average takes
    them in.
    """
    share, total, category = (
        run("good", output_type=item) for item in ("comparativeNormalized", "rawScore", "category")
    )
    assert (share.score, total.score, category.score) == (0.7, 2, "positive")
    assert (share.normalized, total.normalized, category.normalized) == (0.7, None, None)
    assert category.label == "positive"
    assert [
        evaluator(output_type=item).criteria()[0].scale for item in ("rawScore", "category")
    ] == ["raw", "category"]
    assert evaluator(output_type="rawScore", scale="numeric").criteria()[0].scale == "numeric"


def test_categories_begin_beyond_their_thresholds() -> None:
    """A score that equals a threshold is neutral; thresholds must leave room between them."""
    fields = {"output_type": "category", "negative_threshold": -2, "positive_threshold": 2}
    assert [run(text, **fields).score for text in ("good", "great", "poor", "awful", "table")] == [
        "neutral",
        "positive",
        "neutral",
        "negative",
        "neutral",
    ]
    for wrong in (
        {"negative_threshold": 0.2},
        {"positive_threshold": -0.2},
        {"negativeThreshold": 1, "positiveThreshold": 0},
    ):
        with pytest.raises(
            ConfigurationError, match="negative_threshold must be below positive_threshold"
        ):
            evaluator(output_type="category", **wrong)
        assert evaluator(output_type="rawScore", **wrong).output_type == "rawScore"


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        "not good": -2,
        "not a good one": 2,
        "It isn't good": -2,
        "It isn\u2019t good": -2,
        "didnt help": -2,
        "I can't complain": 2,
        "never good": -2,
        "constructor good": 2,
        "no good": 2,
        "\u2018good\u2019": 2,
        "'good'": 2,
        "good-bad": 0,
        "good\tbad": -1,
        "good\u00a0bad": -1,
        "[good]": 2,
        "good\u2014bad": -1,
        "user-friendly": 2,
        "-good-": 2,
        "so--good": 2,
        "GOOD": 2,
        "nai\u0308ve": -2,
        "good_bad": -1,
        "I \u2764\ufe0f it": 3,
        "\U0001f60d\U0001f60d": 6,
        "wow\U0001f44d\U0001f3fd!": 6,
        "not \U0001f44d": -2,
    }.items(),
)
def test_words_and_emoji_are_found(text: str, expected: int) -> None:
    """Typographic apostrophes, glued emoji, skin tones, quotes and tabs keep no word from being
    found.
    """
    assert raw(text) == expected


def test_original_tokens_keep_agentdocks_oddities() -> None:
    """Tabs, brackets, apostrophes and variation selectors split words as they do in AgentDock."""
    oddities = {
        "good\tbad": 0,
        "I don\u2019t hate it": -3,
        "constructor good": -2,
        "[good]": 0,
        "\u2764\ufe0f": 0,
        "\U0001f60d": 3,
        "didn't help": 2,
        "good\t\tgood": 4,
        "good.bad": -1,
    }
    assert {text: raw(text, agentdock_tokens=True) for text in oddities} == oddities


@pytest.mark.parametrize(
    ("output_type", "score"),
    [("comparativeNormalized", 0.5), ("rawScore", 0), ("category", "neutral")],
)
def test_a_blank_text_is_neutral(output_type: str, score: Any) -> None:
    """Nothing said sounds like nothing."""
    for blank in ("", " \n\t", "\ufeff"):
        result = run(blank, output_type=output_type)
        assert (result.score, result.metadata) == (score, None)


def test_a_file_may_be_the_lexicon(tmp_path: Path) -> None:
    """A file of words and values is all there is then, emoji included; comments and empty lines are
    passed over.
    """
    path = tmp_path / "words.tsv"
    path.write_bytes(
        "\ufeff# ours\r\n\r\nRefund\t-2.5\r\nship-shape\t4\n\U0001f44d\t 1 \nna\u00efve\t-0\n".encode()
    )
    assert raw("A refund! Ship-shape \U0001f44d naïve good", lexicon=str(path)) == 2.5
    part = evaluator(lexicon=str(path))
    first = part.fingerprint
    path.write_text("refund\t3\n")
    assert evaluator(lexicon=str(path)).fingerprint != first
    path.unlink()
    assert part.score(EvaluationInput(response="refund")).value == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, 'expected "builtin", "afinn" or the path of a lexicon file:'),
        (b"good\t1\nbad -1\n", "line 2: expected a word, a tab and a number, found 'bad -1'"),
        (b"\t1\n", "line 1: expected a word, a tab and a number"),
        (b"# words\ngood\t6\n", "line 2: expected a number from -5 to 5, found '6'"),
        (b"good\tnan\n", "line 1: expected a number from -5 to 5, found 'nan'"),
        (b"\xff\t1\n", ": not UTF-8"),
    ],
)
def test_a_wrong_file_is_refused_by_its_line(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    """What is wrong with a lexicon is told at load, with the number of the line."""
    path = tmp_path / "words.tsv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        evaluator(lexicon=str(path))


def test_without_the_extra_afinn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra and the other choices."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigurationError, match=re.escape('pip install "agenteval-otel[sentiment]"')
    ):
        evaluator(lexicon=AFINN)
    assert evaluator().lexicon == BUILTIN


def test_the_lexica_hold_single_words_with_values() -> None:
    """The package's own words are worth something, and each can be found in a text."""
    own = load_lexicon(BUILTIN).values
    assert 0 not in own.values()
    for name in ("words.tsv", "emoji.tsv"):
        lines = (Path(sentiment.__file__).parent / "lexicon" / name).read_text("utf-8").splitlines()
        words = [line.partition("\t")[0] for line in lines if not line.startswith("#")]
        assert all(tokens(word) == [word] and agentdock_tokens(word) == [word] for word in words)
    afinn = load_lexicon(AFINN).values
    assert len([word for word in afinn if word.isascii()]) > 3_000
    assert afinn["\U0001f60d"] == own["\U0001f60d"]
