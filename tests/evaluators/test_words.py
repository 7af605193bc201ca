"""Words in text of any script, and many terms at once: every way of looking agrees with the plain one."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.evaluators.words import Terms, folded, has_word

OTHERS = tuple(f"other{number}" for number in range(200))


def joins(char: str) -> bool:
    """The rule, said plainly: letters, marks, digits and underscores, but for scripts without spaces."""
    if not (char.isalnum() or char == "_" or unicodedata.category(char).startswith("M")):
        return False
    return not any(word in unicodedata.name(char, "") for word in ("CJK", "HIRAGANA", "HANGUL", "THAI"))


def stands(text: str, word: str) -> bool:
    """Whether the word stands alone somewhere, place by place."""
    for start in range(len(text) - len(word) + 1):
        end = start + len(word)
        if text[start:end] == word and not (
            (start and joins(word[0]) and joins(text[start - 1]))
            or (end < len(text) and joins(word[-1]) and joins(text[end]))
        ):
            return True
    return False


SIGNS = "ab é_気天แ#-* \u0301\U0001f4a9"
TEXTS = st.text(alphabet=SIGNS, max_size=30)
TERMS = st.lists(st.text(alphabet=SIGNS, min_size=1, max_size=5), min_size=1, max_size=8)


@given(text=TEXTS, terms=TERMS)
@settings(deadline=None, max_examples=300)
def test_few_and_many_terms_are_found_alike(text: str, terms: list[str]) -> None:
    """One by one or by the text's words: the same terms are found, and they are those of the plain rule."""
    expected = {term for term in terms if stands(text, term)}
    assert Terms(terms, whole_words=True).terms_in(text) == expected
    assert Terms((*terms, *OTHERS), whole_words=True).terms_in(text) == expected
    assert {term for term in terms if has_word(text, term)} == expected


@given(text=TEXTS, terms=TERMS)
@settings(deadline=None, max_examples=300)
def test_parts_of_words_are_found_alike(text: str, terms: list[str]) -> None:
    """Without whole words a term is found wherever it stands, however many others there are."""
    expected = {term for term in terms if term in text}
    assert Terms(terms, whole_words=False).terms_in(text) == expected
    assert Terms((*terms, *OTHERS), whole_words=False).terms_in(text) == expected


@given(text=st.text(max_size=60), terms=st.lists(st.text(max_size=6), max_size=6), whole=st.booleans())
@settings(deadline=None, max_examples=300)
def test_any_unicode_is_looked_through(text: str, terms: list[str], whole: bool) -> None:
    """Whatever the characters, few and many agree, and a whole word is a part as well."""
    few, many = Terms(terms, whole_words=whole), Terms((*terms, *OTHERS), whole_words=whole)
    assert few.terms_in(text) == many.terms_in(text) <= {term for term in terms if term and term in text}


@given(word=st.text(alphabet="ab気é*", min_size=1, max_size=3), tail=TEXTS)
@settings(deadline=None)
def test_a_word_hidden_in_others_is_found_all_the_same(word: str, tail: str) -> None:
    """After many places inside of other words it is looked for in another way, with the same answer."""
    text = f"x{word}x" * 70 + " " + tail
    assert has_word(text, word) is stands(text, word)


@pytest.mark.parametrize(
    ("text", "terms", "count"),
    [
        ("a rose is a rose", ["rose"], 2),
        ("roses", ["rose"], 0),
        ("ha ha ha ha", ["ha ha"], 2),
        ("new york, york", ["new york", "york"], 3),
        ("a a", ["a", "a"], 2),
        ("天気、天気", ["天気"], 2),
        ("c++ and c+++", ["c++"], 2),
        ("", ["a"], 0),
    ],
)
def test_occurrences_are_counted(text: str, terms: list[str], count: int) -> None:
    """Each term counts for itself, and its own occurrences do not overlap."""
    assert Terms(terms, whole_words=True).count(text) == count


def test_parts_of_words_are_counted() -> None:
    """Without whole words the occurrences inside of words count."""
    assert Terms(["ros", "se"], whole_words=False).count("roses rose") == 4


@given(text=TEXTS, term=st.text(alphabet=SIGNS, min_size=1, max_size=3))
@settings(deadline=None)
def test_what_is_found_is_counted(text: str, term: str) -> None:
    """A term is counted at least once exactly where it is found."""
    for whole in (True, False):
        ready = Terms([term], whole_words=whole)
        assert (ready.count(text) > 0) is bool(ready.terms_in(text))


def test_long_phrases_are_found() -> None:
    """A phrase far longer than others is looked for as it stands, at its borders too."""
    phrase = "word " * 100 + "end"
    ready = Terms((phrase, *OTHERS), whole_words=True)
    assert ready.terms_in(f"so: {phrase}.") == {phrase}
    assert ready.terms_in(f"so: {phrase}s") == set()
    assert ready.count(f"{phrase} {phrase}s {phrase}") == 2


def test_forms_are_compared() -> None:
    """Composed and decomposed characters are the same, and case is put aside unless it counts."""
    assert folded("CAFE\u0301", case_sensitive=False) == "café"
    assert folded("Cafe\u0301", case_sensitive=True) == "Café"


def test_terms_say_how_many_they_are() -> None:
    """Equal and empty terms are one and none."""
    ready = Terms(["a", "a", "", "b"], whole_words=True)
    assert (len(ready), repr(ready)) == (2, "<Terms 2 whole words>")


def took_s(look: Callable[[], object]) -> float:
    """Processor time of the fastest of three."""
    times = []
    for _ in range(3):
        began = time.process_time()
        look()
        times.append(time.process_time() - began)
    return min(times)


@pytest.mark.parametrize(
    "text",
    ["the cat sat on the mat ", "xcat", "cat's ", "天気がいい", "a ", "naïve café, ", "\u0301\u0300", "a-cat-"],
    ids=["prose", "inside", "apostrophes", "spaceless", "letters", "accents", "marks", "hyphens"],
)
@pytest.mark.parametrize("whole", [True, False])
def test_time_grows_with_the_text_and_no_faster(text: str, whole: bool) -> None:
    """Sixteen times the text takes some sixteen times as long, not its square, whatever the text is made of."""
    ready = Terms((*OTHERS, "cat", "cat's paw", "dog-cat", "天気予報", "💩"), whole_words=whole)
    short, long = text * (8_192 // len(text)), text * (131_072 // len(text))
    ready.terms_in(short)
    for _ in range(3):
        if took_s(lambda: ready.terms_in(long)) < 64 * max(took_s(lambda: ready.terms_in(short)), 1e-4):
            return
    pytest.fail("more than four times what is linear, three times")


def test_a_word_of_many_phrases_may_be_repeated() -> None:
    """A text of nothing but the word that many phrases are made of does not try all of them at each place."""
    text = "a " * 32_768
    one, many = (Terms(["a " * length + "b" for length in range(1, most)], whole_words=True) for most in (40, 120))
    one.terms_in(text), many.terms_in(text)
    for _ in range(3):
        if took_s(lambda: many.terms_in(text)) < 2 * took_s(lambda: one.terms_in(text + " x" * 32_768)):
            break
    else:
        pytest.fail("three times as many phrases take more than twice as long as twice the text, three times")
    assert one.terms_in(text + "b") == {"a " * length + "b" for length in range(1, 40)}


def test_ten_thousand_terms_cost_no_more_than_the_text() -> None:
    """A hundred times as many terms take a few times as long at most: they are not looked for one by one."""
    text = "the quick brown fox jumps over the lazy dog " * 2_000
    few = Terms([f"term{number}" for number in range(100)], whole_words=True)
    many = Terms([f"term{number}" for number in range(10_000)], whole_words=True)
    for ready in (few, many):
        assert ready.terms_in(text) == set()
    for _ in range(3):
        if took_s(lambda: many.terms_in(text)) < 10 * took_s(lambda: few.terms_in(text)):
            return
    pytest.fail("ten times as long, three times")
