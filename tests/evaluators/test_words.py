"""Words in text of any script, and many terms at once: every way to search agrees with the plain
rule.
"""

from __future__ import annotations

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.evaluators.words import WHITESPACE, Terms, collapsed, folded

OTHERS = tuple(f"other{number}" for number in range(200))
SIGNS = "ab é_気天แ#-* \u0301\U0001f4a9"
TEXTS = st.text(alphabet=SIGNS, max_size=30)
TERMS = st.lists(st.text(alphabet=SIGNS, min_size=1, max_size=5), min_size=1, max_size=8)


def joins(char: str) -> bool:
    """The rule: letters, marks, digits and underscores, but for scripts without spaces."""
    if not (char.isalnum() or char == "_" or unicodedata.category(char).startswith("M")):
        return False
    return not any(
        word in unicodedata.name(char, "") for word in ("CJK", "HIRAGANA", "HANGUL", "THAI")
    )


def stands_alone(text: str, word: str) -> bool:
    for start in range(len(text) - len(word) + 1):
        end = start + len(word)
        if text[start:end] == word and not (
            (start and joins(word[0]) and joins(text[start - 1]))
            or (end < len(text) and joins(word[-1]) and joins(text[end]))
        ):
            return True
    return False


@given(text=TEXTS, terms=TERMS, whole=st.booleans())
@settings(deadline=None, max_examples=100)
def test_few_and_many_terms_match_alike(text: str, terms: list[str], whole: bool) -> None:
    """The same terms occur, alone and among many others, and a term is counted exactly where it
    occurs.
    """
    expected = {term for term in terms if (stands_alone(text, term) if whole else term in text)}
    few, many = Terms(terms, whole_words=whole), Terms((*terms, *OTHERS), whole_words=whole)
    assert few.terms_in(text) == many.terms_in(text) == expected
    assert bool(few.count(text)) is bool(many.count(text)) is bool(expected)


def test_long_phrases_match() -> None:
    """A phrase far longer than the other terms matches as it stands, at its borders too."""
    phrase = "word " * 100 + "end"
    terms = Terms((phrase, *OTHERS), whole_words=True)
    assert terms.terms_in(f"so: {phrase}.") == {phrase}
    assert terms.terms_in(f"so: {phrase}s") == set()


def test_of_many_terms_a_beginning_is_no_match() -> None:
    """A word or phrase of which only the first letters occur is not in the text."""
    terms = Terms(("carts", "carpet store", *OTHERS), whole_words=False)
    assert terms.terms_in("a car, a carpet, a cart") == set()
    assert terms.terms_in("a carpet store for carts") == {"carts", "carpet store"}


def test_forms_are_compared() -> None:
    """Composed and decomposed characters are equal, and so are cases unless case counts."""
    assert folded("CAFE\u0301", case_sensitive=False) == "café"
    assert folded("Cafe\u0301", case_sensitive=True) == "Café"


@given(text=st.text(f"ab{WHITESPACE}\x1c\x1f\x85\u180e\u200b", max_size=20))
@settings(deadline=None)
def test_whitespace_is_the_specifications(text: str) -> None:
    """Runs of the specification's whitespace become one space, trimmed; whitespace of Python alone
    stays.
    """
    expected: list[str] = []
    for char in text:
        if char not in WHITESPACE:
            expected.append(char)
        elif expected and expected[-1] != " ":
            expected.append(" ")
    assert collapsed(text) == "".join(expected).removesuffix(" ")
