"""Patterns that are searched in linear time: which they are, and that their answers are those of the other engine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import RuleBased
from agenteval_otel.patterns import JsPattern, compile_pattern
from agenteval_otel.patterns import linear as linear_module
from agenteval_otel.patterns.re2_source import cost_of
from agenteval_otel.patterns.syntax import parse
from agenteval_otel.sampling import PatternSampler


@pytest.fixture
def without_re2(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if the extra were not installed."""
    caches = (compile_pattern, linear_module._engine)
    for cache in caches:
        cache.cache_clear()
    monkeypatch.setitem(sys.modules, "re2", None)
    yield
    for cache in caches:
        cache.cache_clear()


def backtracking(pattern: JsPattern) -> JsPattern:
    """The same pattern, searched by the other engine."""
    return JsPattern(pattern.compiled, pattern.sticky)


CHARACTERS = [
    "a", "b", "B", "k", "_", "1", "-", " ", r"\.", "é", "\u2028", r"\n", r"\r", r"\u2028", "\U0001f600", "\ud800",
    r"\uD83D\uDE00", "[ab]", "[^a]", "[^]", "[]", "[a-cé]", r"[^\n]", r"\w", r"\W", r"\d", r"\D", r"\s", r"\S",
    r"[\w.]", r"[^\s]", ".", r"\x41", "K", "\u017f", "É",
]  # fmt: skip
PROPERTIES = [r"\p{L}", r"\P{L}", r"[\p{Lu}1]", r"[^\p{Lu}]", r"\u{1f600}"]
COUNTS = ["", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,}", "{2,3}?"]


def patterns(characters: list[str]) -> st.SearchStrategy[str]:
    """Patterns of everything that both engines have."""
    one = st.builds(str.__add__, st.sampled_from(characters), st.sampled_from(COUNTS))
    edge = st.sampled_from(["^", "$", r"\b", r"\B"])
    leaf = st.lists(st.one_of(one, one, one, edge), max_size=3).map("".join)

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        group = st.builds(
            "{}{}){}".format, st.sampled_from(["(", "(?:"]), inner, st.sampled_from(COUNTS)
        )  # fmt: skip
        return st.one_of(
            st.lists(inner, min_size=2, max_size=3).map("|".join), st.builds("{}{}{}".format, leaf, group, leaf)
        )

    return st.recursive(leaf, larger, max_leaves=4)


CASES = st.sampled_from(["", "", "i", "m", "s", "y", "u", "iu", "isum"]).flatmap(
    lambda flags: st.tuples(patterns(CHARACTERS + PROPERTIES * ("u" in flags)), st.just(flags))
)
TEXTS = st.lists(
    st.text(alphabet="aabBkK_1- .\n\r\u2028\u2029éÉ\U0001f600\ud800\u017fA\0", max_size=10), min_size=1, max_size=6
)


@given(case=CASES, texts=TEXTS)
@settings(deadline=None, max_examples=100)
def test_both_engines_give_the_same_answers(case: tuple[str, str], texts: list[str]) -> None:
    """Whether a pattern occurs, and where, does not depend on the engine that looks."""
    compiled = compile_pattern(*case)
    if compiled.linear is None:
        return
    other = backtracking(compiled)
    for text in texts:
        assert compiled.found(text) is other.found(text, limit_s=10.0)
        assert compiled.spans(text) == other.spans(text, limit_s=10.0)


@pytest.mark.parametrize(
    ("pattern", "flags"),
    [
        ("(a+)+$", ""), ("(x+x+)+y", ""), ("^(([a-z])+.)+$", ""), ("sorry", ""), ("", ""), (r"\.", ""), ("4-2", "i"),
        (r"[\w.+-]+@[\w-]+\.\w+", "i"), (r"\b(?:cannot|can't|won't) (?:help|assist)\b", "i"), ("^- .+$", "m"),
        ("(?:^a|b$)", "m"), (r"\p{Lu}+", "u"), ("a??b*?", "y"), (r"\Ba", ""), ("(?<name>a)b", ""), ("a{40}", ""),
        ("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", ""), ("|".join(f"word {n:03}" for n in range(400)), "i"),
    ],
)  # fmt: skip
def test_ordinary_patterns_are_linear(pattern: str, flags: str) -> None:
    """What rules usually look for, and what is known to ruin engines that go back, has a linear form."""
    compiled = compile_pattern(pattern, flags)
    assert (compiled.linear is not None, compiled.obstacle, compiled.never_linear) == (True, None, False)


@pytest.mark.parametrize(
    ("pattern", "flags", "obstacle", "never"),
    [
        ("a(?=b)", "", "looking around, (?=...)", True), ("(?<!a)b", "", "looking around, (?<!...)", True),
        (r"(a)\1", "", "a reference to a group", True), (r"(?<n>a)\k<n>", "", "a reference to a group", True),
        ("a^b", "m", "^ in the middle, with the flag m", False), ("(?:a$)+", "m", "$ in the middle", False),
        (r"a*\B", "", r"\B in a pattern that may match nothing", False), ("a[ab]{900}c", "", "too many", False),
        ("(?:a{40}){30}", "", "too many", False),
    ],
)  # fmt: skip
def test_what_has_no_linear_form_says_why(pattern: str, flags: str, obstacle: str, never: bool) -> None:
    """Each obstacle is named, and whether another engine or size would help; such a pattern still works."""
    compiled = compile_pattern(pattern, flags)
    assert compiled.linear is None
    assert (compiled.obstacle or "").startswith(obstacle)
    assert compiled.never_linear is never
    assert compiled.found("-") in (True, False)


def test_the_places_are_those_of_characters() -> None:
    """Matches are counted in characters, whatever their size in the encoding, also beside lone surrogates."""
    text = "é1\U0001f60022\ud8003\u2028"
    assert compile_pattern("[0-9]+").spans(text) == [(1, 2), (3, 5), (6, 7)]
    assert compile_pattern("22").spans(text) == [(3, 5)]
    assert compile_pattern("aa").spans("aaaaa") == [(0, 2), (2, 4)]


def test_many_searches_have_a_time_limit() -> None:
    """Each search is linear, and yet as many as there are matches are stopped: here each one looks to the end."""
    with pytest.raises(TimeoutError):
        compile_pattern("a[^]*b|a").spans("a" * 200_000, limit_s=0.01)


def test_words_in_any_order_need_no_engine(without_re2: None) -> None:
    """Words as they stand are linear everywhere; patterns are searched by the other engine, within their time."""
    assert compile_pattern("sorry|cannot").linear is not None
    assert compile_pattern("sorry|cannot").found("I cannot")
    assert compile_pattern("sorry|cannot").spans("I cannot, sorry") == [(2, 8), (10, 15)]
    assert not compile_pattern("sorry|cannot", "y").found("I cannot")
    pattern = compile_pattern("[0-9]+")
    assert (pattern.linear, pattern.obstacle) == (None, "the extra re2 is not installed")
    assert pattern.found("a1")
    assert PatternSampler(pattern="refund(s|ed)?").ratio == 1.0


def test_another_package_of_that_name_is_not_taken(without_re2: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What else calls itself re2 may go back to an engine without limits."""
    monkeypatch.setitem(sys.modules, "re2", __import__("re"))
    assert compile_pattern("[0-9]+").linear is None


def test_a_fork_leaves_the_parents_patterns_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child compiles its patterns anew, once: a lock that a thread held at the fork is open for nobody there."""
    automaton = compile_pattern("fork[0-9]+").linear
    assert isinstance(automaton, linear_module.Automaton)
    of_the_parent = automaton._compiled
    assert automaton.found("fork7")
    assert automaton._compiled is of_the_parent
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert automaton.found("fork7")
    of_the_child = automaton._compiled
    assert of_the_child is not of_the_parent
    assert automaton.found("fork7")
    assert automaton._compiled is of_the_child


def test_words_cost_nothing_and_classes_what_they_may_cost() -> None:
    """What crafted text can make of a pattern grows with its repeated classes, not with its words."""

    def cost(pattern: str, flags: str = "") -> int:
        return cost_of(parse(pattern, flags))

    assert cost("a long list of words|of which|one is there", "i") == 0
    assert cost("[a-z]{20}") == 20 * cost("[a-z]") > cost("[a-z]+") > 0
    assert cost("(?:a[a-z]{5}){6}") > 30 * cost("[a-z]")
    assert cost(r"\p{L}", "u") > cost("[a-z]")


def rules(*given: str) -> RuleBased:
    listed = [{"criterionName": "R", "config": {"type": "regex", "pattern": pattern}} for pattern in given]
    return RuleBased.load({"rules": listed})


def test_linear_patterns_run_on_the_loop() -> None:
    """Rules are free as long as all of their patterns are linear; one that is not takes them to the child process."""
    assert rules("(a+)+$", "sorry").resolved_execution == "inline"
    assert rules("(a+)+$", "a(?=b)").resolved_execution == "process"


def test_without_the_engine_only_words_run_on_the_loop(without_re2: None) -> None:
    """Without the extra a pattern may take long, so it goes to the child process."""
    assert rules("sorry", "cannot").resolved_execution == "inline"
    assert rules("sorry", "[0-9]+").resolved_execution == "process"


def test_the_sampler_refuses_what_nothing_can_search_in_linear_time() -> None:
    """It looks in the host's process: the construct is named at load, and what to use."""
    with pytest.raises(ConfigurationError, match=r"looking around, \(\?!\.\.\.\).*FunctionSampler"):
        PatternSampler(pattern="error(?! rate)")
    with pytest.raises(ConfigurationError, match="reference to a group"):
        PatternSampler.load({"pattern": r"(.)\1\1\1"})


def test_the_engines_are_loaded_with_the_first_pattern() -> None:
    """Importing the package, its evaluators and samplers loads neither engine."""
    code = (
        "import sys, agenteval_otel, agenteval_otel.evaluators, agenteval_otel.sampling\n"
        "assert not {'re2', 'regex'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
