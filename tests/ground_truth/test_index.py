"""Which row answers a question."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.evaluators.ground_truth.index import (
    NormalizedQuery,
    QuestionIndex,
    SubstringIndex,
    TableRow,
)

RESET, QUICK, REFUND = (
    "How do I reset my password?",
    "How do I reset my password quickly?",
    "Can I get a refund?",
)


def table(*prompts: str, min_words: int = 3, min_share: float = 0.4) -> QuestionIndex:
    return QuestionIndex(
        [TableRow(prompt, prompt) for prompt in prompts], min_words=min_words, min_share=min_share
    )


def substrings(*prompts: str) -> SubstringIndex:
    return SubstringIndex([TableRow(prompt, prompt) for prompt in prompts])


def match_of(
    index: QuestionIndex, prompt: str | None, module: str | None = None
) -> tuple[str, str, float] | None:
    answer = index.find(prompt, module)
    return None if answer is None else (answer.answer, answer.match, round(answer.share, 3))


@pytest.mark.parametrize(
    ("row", "prompt"),
    [
        (RESET, RESET.upper()),
        (RESET, f"  {RESET}\n"),
        (RESET, RESET.replace(" ", "\t\u00a0 ")),
        ("Où est le café ?", "OU\u0300 EST LE CAFE\u0301 ?"),
        ("Straße und Haus", "STRASSE UND HAUS"),
    ],
)
def test_the_same_question_comes_first(row: str, prompt: str) -> None:
    """Case, Unicode form and whitespace do not matter."""
    assert match_of(table(QUICK, row, REFUND), prompt) == (row, "exact", 1.0)


def test_the_nearest_partial_match_wins() -> None:
    """The longest row inside the prompt, or the shortest row around it."""
    index = table(RESET, QUICK, REFUND)
    assert match_of(index, f"Hello, {RESET} Thanks") == (RESET, "partial", 0.75)
    assert match_of(index, f"{RESET} And: {QUICK}") == (QUICK, "partial", 0.5)
    assert match_of(index, "reset my password") == (RESET, "partial", 0.5)
    assert match_of(index, "how do I reset my password quickly") == (QUICK, "partial", 1.0)


def test_words_are_whole_and_in_order() -> None:
    """Parts of words, words in between and another order do not match."""
    index = table("get a refund now")
    assert match_of(index, "get a refund") == ("get a refund now", "partial", 0.75)
    for prompt in ("get a refun", "et a refund", "get a full refund", "refund a get", "a refund"):
        assert match_of(index, prompt) is None


def test_the_first_of_equal_matches_wins() -> None:
    """Of two rows with the same question the first in the file wins, whatever its answer."""
    rows = [
        TableRow("What are fees?", "", None, None),
        TableRow("What are fees?", "5", None, None),
        TableRow("a b c x", "1"),
        TableRow("a b c y", "2"),
    ]
    index = QuestionIndex(rows, min_words=3, min_share=0.4)
    # its answer is empty: there is no reference for this question
    assert index.find("what are fees?") is None
    assert match_of(index, "a b c") == ("1", "partial", 0.75)


@pytest.mark.parametrize("prompt", [None, "", "  \n", "?!"])
def test_a_blank_prompt_has_no_answer(prompt: str | None) -> None:
    """No prompt, blanks, only punctuation."""
    assert table(RESET, "x").find(prompt) is None


def test_scripts_without_spaces_match_by_characters() -> None:
    """Every character counts as a word."""
    index = table("パスワードを忘れました", "如何重置密码")
    assert match_of(index, "すみません、パスワードを忘れました。") == (
        "パスワードを忘れました",
        "partial",
        0.688,
    )
    assert match_of(index, "重置密码") == ("如何重置密码", "partial", 0.667)


def test_original_matching() -> None:
    """Any substring, ignoring only case, letter by letter as .NET compares; the first row in the
    file wins.
    """
    index = substrings(RESET, QUICK, "Straße und Haus", "ΟΔΟΣ ΛΓΣ", "size")
    assert match_of(index, "a") == (RESET, "partial", 0.167)
    assert match_of(index, f"{QUICK} or {RESET}") == (RESET, "partial", 0.429)
    assert match_of(index, QUICK.upper()) == (QUICK, "exact", 1.0)
    assert match_of(index, "οδος λγς") == match_of(index, "οδοσ λγσ") == ("ΟΔΟΣ ΛΓΣ", "exact", 1.0)
    for prompt in ("reset  my password", " ", "\u017fize", "s\u0131ze", "STRASSE"):
        assert match_of(index, prompt) is None


def by_looking_at_all(rows: Sequence[str], prompt: str) -> tuple[str, float] | None:
    """The expected match, worked out without an index."""
    query, best = NormalizedQuery.of(prompt), None
    same = next((row for row in rows if NormalizedQuery.of(row).text == query.text), None)
    if same is not None:
        return same, 1.0
    for row in rows:
        shorter, longer = sorted(
            (NormalizedQuery.of(row), query), key=lambda either: len(either.words)
        )
        share = len(shorter.words) / max(1, len(longer.words))
        fits = len(shorter.words) >= 2 and share >= 0.4 and shorter.phrase in longer.phrase
        if fits and (best is None or share > best[1]):
            best = row, share
    return best


WORDS = st.lists(
    st.sampled_from(["a", "b", "B", "é", "e\u0301", "don't", "京都", "?", "7"]),
    min_size=1,
    max_size=9,
)


@settings(deadline=None, max_examples=150)
@given(st.lists(WORDS.map(" ".join), min_size=1, max_size=12), WORDS.map(" ".join))
def test_the_index_finds_what_looking_at_all_rows_finds(rows: list[str], prompt: str) -> None:
    """The index and an exhaustive search agree."""
    answer = table(*rows, min_words=2).find(prompt)
    expected = by_looking_at_all(rows, prompt)
    assert (None if answer is None else answer.share) == (
        None if expected is None else pytest.approx(expected[1])
    )
    if answer is not None and answer.match == "exact":
        assert answer.answer == expected[0]  # type: ignore[index]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=5), st.text(), st.text())
def test_any_unicode_text_can_be_looked_up(rows: list[str], prompt: str, module: str) -> None:
    """A row is found by its own text, and a lookup is repeatable."""
    index = table(*rows, min_words=1, min_share=0.01)
    assert index.find(prompt, module) == index.find(prompt, module)
    for row in rows:
        if row.strip():
            answer = index.find(row)
            assert answer is not None
            assert NormalizedQuery.of(answer.prompt) == NormalizedQuery.of(row)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(WORDS.map(" ".join), st.sampled_from([None, "a", "A ", "b", "c"])),
        min_size=1,
        max_size=12,
    ),
    WORDS.map(" ".join),
    st.sampled_from([None, "A", "b", "d"]),
)
def test_a_module_finds_what_an_index_of_its_rows_finds(
    rows: list[tuple[str, str | None]], prompt: str, module: str | None
) -> None:
    """Its rows and those without a module, in the order of the file; all if it has none."""

    def of(some: list[tuple[str, str | None]]) -> QuestionIndex:
        return QuestionIndex(
            [TableRow(text, text, None, name) for text, name in some], min_words=2, min_share=0.4
        )

    own = [
        (text, name)
        for text, name in rows
        if name is None or name.strip().lower() == (module or "").lower()
    ]
    has_own = any(name is not None for _, name in own)
    assert of(rows).find(prompt, module) == of(own if has_own else rows).find(prompt)


HUGE = {
    "one word": "x" * 65_000,
    "words": "a b " * 16_000,
    "marks": "a" + "\u0301\u0323" * 30_000,
    "beginnings": "how do i " * 7_000,
    "ideographs": "京" * 60_000,
}


@pytest.mark.timeout(60)  # what is quadratic takes many minutes
@pytest.mark.parametrize("prompt", HUGE.values(), ids=list(HUGE))
def test_a_huge_prompt_is_fast(prompt: str) -> None:
    """Whatever it consists of."""
    index = table(
        *(f"how do i {'a b ' * (number % 50)}{number}" for number in range(500)), min_share=0.01
    )
    assert index.find(prompt) is None
