"""HashingEmbedder: the same numbers everywhere, near for the same wording, bounded for any text."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.components.loading import resolve
from agenteval_otel.embedders import Embedder, HashingEmbedder
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.runtime.text import composed
from agenteval_otel.testing import check_component, check_embedder
from tests.embedders.real_weights import spearman
from tests.golden import lines
from tests.promises.programs import run_program

EMBEDDER = HashingEmbedder()


def nearness(first: str, second: str) -> float:
    rows = EMBEDDER.embed([first, second])
    return float(rows[0] @ rows[1])


def test_it_is_a_component() -> None:
    """Settings name it, its dump builds it again, and what is wrong is refused with its field."""
    check_component(EMBEDDER, Embedder)
    check_embedder(EMBEDDER)
    assert resolve(Embedder, "hashing") == EMBEDDER
    with pytest.raises(
        ConfigurationError, match=r"embedder\.dimensions: expected at least 16, found 4"
    ):
        resolve(Embedder, {"type": "hashing", "dimensions": 4}, path="embedder")


def test_rows_are_unit_vectors_in_order() -> None:
    """One float32 row per text; a text without content has zeros; other texts of the call change
    nothing.
    """
    texts = ["Paris is the capital", "", "  ...!  ", "Paris is the capital", "東京は首都です"]
    rows = EMBEDDER.embed(texts)
    assert rows.dtype == np.float32
    assert rows.shape == (5, EMBEDDER.dimensions)
    assert np.linalg.norm(rows, axis=1) == pytest.approx([1, 0, 0, 1, 1], abs=1e-6)
    assert (rows[0] == rows[3]).all()
    assert (EMBEDDER.embed(texts[4:])[0] == rows[4]).all()
    assert EMBEDDER.embed([]).shape == (0, EMBEDDER.dimensions)


def test_wording_counts_and_meaning_does_not() -> None:
    """Inflections and typing errors are near, a paraphrase is as far as any other text."""
    assert nearness("The parcels were delivered", "the parcel was delivered.") > 0.6
    assert nearness("reset your password", "reset your pasword") > 0.5
    assert nearness("How do I get my money back?", "Is a refund possible?") < 0.2
    assert nearness("Straße", "STRASSE") == pytest.approx(1.0, abs=1e-6)
    assert nearness("cafe\u0301", "café") == pytest.approx(1.0, abs=1e-6)


def test_another_process_has_the_same_numbers() -> None:
    """No salted hash takes part."""
    script = (
        "from agenteval_otel.embedders import HashingEmbedder; "
        "print(HashingEmbedder().embed(['Where is order A-17? \\u6771\\u4eac']).tobytes().hex())"
    )
    output = run_program(script, PYTHONHASHSEED="1").stdout
    assert output == EMBEDDER.embed(["Where is order A-17? 東京"]).tobytes().hex() + "\n"


def test_it_beats_plain_hashed_words_on_recorded_judgements() -> None:
    """Its order of rated sentence pairs is nearer to people's than that of hashed words alone."""
    pairs = lines("stsb_dev.jsonl")[1::2]  # the weights were chosen on the others
    assert spearman(HashingEmbedder(gram_weight=0, frequent_weight=1), pairs) < 0.61
    assert spearman(EMBEDDER, pairs) > 0.74


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(), max_size=4))
def test_any_text_has_a_finite_row(texts: list[str]) -> None:
    """For any Unicode, surrogates included, a row is finite and of length 1 or 0."""
    rows = EMBEDDER.embed([*texts, "\ud800 a\udfff"])
    assert np.isfinite(rows).all()
    lengths = np.linalg.norm(rows, axis=1)
    assert (np.isclose(lengths, 1.0, atol=1e-5) | (lengths == 0.0)).all()


HUGE = {
    "one word": "x" * 10_000_000,
    "words": "word " * 2_000_000,
    "marks": "a" + "\u0301\u0323" * 5_000_000,
    "wide": "\ufdfa" * 3_000_000,
    "ideographs": "京" * 3_000_000,
}


@pytest.mark.timeout(60)  # what is quadratic takes many minutes
@pytest.mark.parametrize("text", HUGE.values(), ids=list(HUGE))
def test_a_huge_text_is_cut(text: str) -> None:
    """Text beyond the limit changes nothing."""
    rows = EMBEDDER.embed([text, text[: EMBEDDER.max_characters]])
    assert (rows[0] == rows[1]).all()


def test_composition_is_standard_up_to_thirty_marks() -> None:
    """Ordinary text is composed as in Unicode; of a heap of marks thirty stay."""
    for text in ("plain", "e\u0301 ガ", "한국어", "a" + "\u0323\u0301" * 15):
        assert composed(text) == unicodedata.normalize("NFC", text)
    assert composed("ﬁ", "NFKC") == "fi"
    assert len(composed("a" + "\u0323" * 100_000 + "\u0301" * 100_000)) <= 31
