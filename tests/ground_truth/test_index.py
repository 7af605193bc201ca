"""Which row answers a question."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.ground_truth.index import MAX_PROMPT_CHARACTERS, Matching, NormalizedQuery, QuestionIndex, Row

RESET, QUICK, REFUND = "How do I reset my password?", "How do I reset my password quickly?", "Can I get a refund?"


def table(*prompts: str, matching: Matching = "words", min_words: int = 3, min_share: float = 0.4) -> QuestionIndex:
    rows = [Row(prompt, prompt, None, None) for prompt in prompts]
    return QuestionIndex(rows, matching=matching, min_words=min_words, min_share=min_share)


def found(one: QuestionIndex, prompt: str | None, module: str | None = None) -> tuple[str, str, float] | None:
    answer = one.find(prompt, module)
    return None if answer is None else (answer.answer, answer.match, round(answer.share, 3))


@pytest.mark.parametrize(
    "prompt", [RESET, RESET.upper(), f"  {RESET}\n", RESET.replace(" ", "\t\u00a0 "), "HOW DO I RESET MY PASSWORD?"]
)
def test_the_same_question_comes_first(prompt: str) -> None:
    """Case, Unicode form and whitespace do not matter."""
    assert found(table(QUICK, RESET, REFUND), prompt) == (RESET, "exact", 1.0)


def test_unicode_forms_are_the_same() -> None:
    """A letter with a combining mark equals the composed letter; a sharp s equals two."""
    assert found(table("Où est le café ?"), "OU\u0300 EST LE CAFE\u0301 ?") == ("Où est le café ?", "exact", 1.0)
    assert found(table("Straße und Haus"), "STRASSE UND HAUS") == ("Straße und Haus", "exact", 1.0)


def test_the_nearest_partial_match_wins() -> None:
    """The longest row inside the prompt, or the shortest row around it."""
    one = table(RESET, QUICK, REFUND)
    assert found(one, f"Hello, {RESET} Thanks") == (RESET, "partial", 0.75)
    assert found(one, f"{RESET} And: {QUICK}") == (QUICK, "partial", 0.5)
    assert found(one, "reset my password") == (RESET, "partial", 0.5)
    assert found(one, "how do I reset my password quickly") == (QUICK, "partial", 1.0)


def test_words_are_whole_and_in_order() -> None:
    """Parts of words, words in between and another order do not match."""
    one = table("get a refund now")
    assert found(one, "get a refund") == ("get a refund now", "partial", 0.75)
    for prompt in ("get a refun", "et a refund", "get a full refund", "refund a get", "a refund"):
        assert found(one, prompt) is None


def test_too_few_common_words_do_not_match() -> None:
    """With fewer words than the minimum, or a smaller share, only the same question matches."""
    one = table("one two three four five six seven eight", "hi")
    assert found(one, "two three four") is None
    assert found(one, "two three four five") is not None
    assert found(one, "hi") == ("hi", "exact", 1.0)
    assert found(one, "oh hi you") is None
    assert found(table("oh hi", min_words=1, min_share=0.5), "hi") == ("oh hi", "partial", 0.5)


def test_the_first_of_equal_matches_wins() -> None:
    """Of two rows with the same question the first in the file wins, whatever its answer."""
    rows = [Row("What are fees?", "", None, None), Row("What are fees?", "5", None, None), Row("a b c x", "1"),
            Row("a b c y", "2")]  # fmt: skip
    one = QuestionIndex(rows, min_words=3, min_share=0.4)
    assert one.find("what are fees?") is None  # its answer is empty: there is no reference for this question
    assert found(one, "a b c") == ("1", "partial", 0.75)


@pytest.mark.parametrize("prompt", [None, "", "  \n", "?!", "x" * (MAX_PROMPT_CHARACTERS + 1)])
def test_a_blank_or_endless_prompt_has_no_answer(prompt: str | None) -> None:
    """No prompt, blanks, only punctuation, and more text than any question has."""
    assert table(RESET, "x").find(prompt) is None


def test_scripts_without_spaces_match_by_characters() -> None:
    """Every character counts as a word."""
    one = table("パスワードを忘れました", "如何重置密码")
    assert found(one, "すみません、パスワードを忘れました。") == ("パスワードを忘れました", "partial", 0.688)
    assert found(one, "重置密码") == ("如何重置密码", "partial", 0.667)


def test_a_module_has_its_own_rows() -> None:
    """A module sees its rows and those without a module; a module without rows sees all. Case does not matter."""
    rows = [Row(RESET, "faq", None, "FAQ"), Row(RESET, "help", None, "Help"), Row(REFUND, "faq", None, "FAQ"),
            Row("Where are you from?", "all")]  # fmt: skip
    one = QuestionIndex(rows, min_words=3, min_share=0.4)
    assert [found(one, RESET, module) for module in ("faq", " HELP ", "unknown", None, "")] == [
        (answer, "exact", 1.0) for answer in ("faq", "help", "faq", "faq", "faq")
    ]
    assert found(one, REFUND, "Help") is None
    assert found(one, "Where are you from?", "Help") == ("all", "exact", 1.0)
    assert [row.answer for row in one.of_module("fAQ")] == ["faq", "faq"]
    assert one.of_module("unknown") == ()


def test_a_blank_answer_is_no_reference() -> None:
    """A row with a blank answer says that its question has no reference."""
    rows = [Row(RESET, " \t"), Row(REFUND, [])]
    one = QuestionIndex(rows, min_words=3, min_share=0.4)
    assert (one.find(RESET), one.find(REFUND) is None) == (None, False)


def test_the_first_row_of_the_module_or_of_no_module_wins() -> None:
    """The first in the file; rows of other modules do not count."""
    rows = [Row(RESET, "b", None, "B"), Row(RESET, "all"), Row(RESET, "a", None, "A"), Row(QUICK, "c", None, "C")]
    one = QuestionIndex(rows, min_words=3, min_share=0.4)
    assert [found(one, RESET, module) for module in ("A", "B", "C", "D")] == [
        (answer, "exact", 1.0) for answer in ("all", "b", "all", "b")
    ]
    assert found(one, "reset my password", "C") == ("all", "partial", 0.5)


def test_original_matching() -> None:
    """Any substring, ignoring only case; the first row in the file wins."""
    one = table(RESET, QUICK, "Straße und Haus", matching="original")
    assert found(one, "a") == (RESET, "partial", 0.167)
    assert found(one, f"{QUICK} or {RESET}") == (RESET, "partial", 0.429)
    assert found(one, QUICK.upper()) == (QUICK, "exact", 1.0)
    assert found(one, "reset  my password") is None
    assert found(one, " ") is None


def test_original_matching_compares_letter_by_letter() -> None:
    """As .NET compares: both small sigmas are equal, and no other letter becomes an s or an i."""
    one = table("ΟΔΟΣ ΛΓΣ", "size", "Straße", matching="original")
    assert found(one, "οδος λγς") == found(one, "οδοσ λγσ") == ("ΟΔΟΣ ΛΓΣ", "exact", 1.0)
    for prompt in ("\u017fize", "s\u0131ze", "STRASSE"):
        assert found(one, prompt) is None


def by_looking_at_all(rows: Sequence[str], prompt: str) -> tuple[str, float] | None:
    """The expected match, worked out without an index."""
    query, best = NormalizedQuery.of(prompt), None
    same = next((row for row in rows if NormalizedQuery.of(row).text == query.text), None)
    if same is not None:
        return same, 1.0
    for row in rows:
        shorter, longer = sorted((NormalizedQuery.of(row), query), key=lambda either: len(either.words))
        share = len(shorter.words) / max(1, len(longer.words))
        fits = len(shorter.words) >= 2 and share >= 0.4 and shorter.phrase in longer.phrase
        if fits and (best is None or share > best[1]):
            best = row, share
    return best


WORDS = st.lists(st.sampled_from(["a", "b", "B", "é", "e\u0301", "don't", "京都", "?", "7"]), min_size=1, max_size=9)


@settings(deadline=None, max_examples=400)
@given(st.lists(WORDS.map(" ".join), min_size=1, max_size=12), WORDS.map(" ".join))
def test_the_index_finds_what_looking_at_all_rows_finds(rows: list[str], prompt: str) -> None:
    """The index and an exhaustive search agree."""
    answer = table(*rows, min_words=2).find(prompt)
    expected = by_looking_at_all(rows, prompt)
    assert (None if answer is None else answer.share) == (None if expected is None else pytest.approx(expected[1]))
    if answer is not None and answer.match == "exact":
        assert answer.answer == expected[0]  # type: ignore[index]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=5), st.text(), st.text())
def test_any_unicode_text_can_be_looked_up(rows: list[str], prompt: str, module: str) -> None:
    """A row is found by its own text, and a lookup is repeatable."""
    one = table(*rows, min_words=1, min_share=0.01)
    assert one.find(prompt, module) == one.find(prompt, module)
    for row in rows:
        if row.strip():
            answer = one.find(row)
            assert answer is not None
            assert NormalizedQuery.of(answer.prompt) == NormalizedQuery.of(row)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.tuples(WORDS.map(" ".join), st.sampled_from([None, "a", "A ", "b", "c"])), min_size=1, max_size=12),
    WORDS.map(" ".join),
    st.sampled_from([None, "A", "b", "d"]),
)
def test_a_module_finds_what_an_index_of_its_rows_finds(
    rows: list[tuple[str, str | None]], prompt: str, module: str | None
) -> None:
    """Its rows and those without a module, in the order of the file; all if it has none."""

    def of(some: list[tuple[str, str | None]]) -> QuestionIndex:
        return QuestionIndex([Row(text, text, None, name) for text, name in some], min_words=2, min_share=0.4)

    own = [(text, name) for text, name in rows if name is None or name.strip().lower() == (module or "").lower()]
    has_own = any(name is not None for _, name in own)
    assert of(rows).find(prompt, module) == of(own if has_own else rows).find(prompt)


HUGE = {
    "one word": "x" * 65_000, "words": "a b " * 16_000, "marks": "a" + "\u0301\u0323" * 30_000,
    "beginnings": "how do i " * 7_000, "ideographs": "京" * 60_000, "too long": RESET * 1_000_000,
}  # fmt: skip


@pytest.mark.timeout(60)  # what is quadratic takes many minutes
@pytest.mark.parametrize("prompt", HUGE.values(), ids=list(HUGE))
def test_a_huge_prompt_is_fast(prompt: str) -> None:
    """Whatever it consists of; a prompt longer than any question is not looked up."""
    one = table(*(f"how do i {'a b ' * (number % 50)}{number}" for number in range(500)), min_share=0.01)
    assert one.find(prompt) is None


def test_a_lookup_hardly_grows_with_the_rows() -> None:
    """Sixteen times the rows take less than eight times as long, found or not."""

    def made(count: int) -> QuestionIndex:
        return table(*(f"what is the price of item {n} in shop {n % 97} today" for n in range(count)))

    def best_s(one: QuestionIndex) -> float:
        prompts = ["price of item 77 in shop 77", "what is the price of", "please: what is the price of item 3 in shop"]

        def once() -> float:
            began = time.process_time()
            for prompt in prompts * 20:
                one.find(prompt)
            return time.process_time() - began

        return min(once() for _ in range(5))

    few, many = made(1_000), made(16_000)
    assert any(best_s(many) < 8 * best_s(few) for _ in range(3))
