"""Patterns: which are searched in linear time, and that both engines give the same answers."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Regex, RuleBased
from agenteval_otel.runtime import patterns as module
from agenteval_otel.runtime.patterns import compile_pattern
from agenteval_otel.sampling import PatternSampler


@pytest.fixture
def without_re2(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    caches = (compile_pattern, module._re2, module._automaton)
    for cache in caches:
        cache.cache_clear()
    monkeypatch.setitem(sys.modules, "re2", None)
    yield
    for cache in caches:
        cache.cache_clear()


ATOMS = [
    "a", "b", "B", "k", "_", "1", "-", " ", "{", r"\.", "é", "É", "\u2028", r"\n", "\U0001f600", "\ud800", "[ab]",
    "[^a]",
    "[a-cé]", r"[^\n]", r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", r"[\w.]", r"[^\s]", r"[\W1]", "[[b]",
    ".", r"\x41", r"\u00e9",
    r"\p{L}", r"\P{L}", r"[\p{Lu}1]",
]  # fmt: skip
COUNTS = ["", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{,2}", "{1,}", "{2,3}?"]
EDGES = ["^", "$", r"\b", r"\A", r"\Z"]


def patterns() -> st.SearchStrategy[str]:
    repeated = st.builds(str.__add__, st.sampled_from(ATOMS), st.sampled_from(COUNTS))
    leaf = st.lists(
        st.one_of(repeated, repeated, repeated, st.sampled_from(EDGES)), max_size=3
    ).map("".join)

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        opening = st.sampled_from(["(", "(?:", "(?P<name>"])
        group = st.builds("{}{}){}".format, opening, inner, st.sampled_from(COUNTS))
        return st.one_of(
            st.lists(inner, min_size=2, max_size=3).map("|".join),
            st.builds(str.__add__, leaf, group),
        )

    return st.recursive(leaf, larger, max_leaves=4)


TEXTS = st.lists(
    st.text(alphabet="aabBkK_1- .{\n\x0b\u2028éÉ\U0001f600\ud800A\0", max_size=10),
    min_size=1,
    max_size=6,
)


@given(pattern=patterns(), flags=st.sampled_from(["", "", "i", "m", "s", "ims"]), texts=TEXTS)
@settings(deadline=None, max_examples=100)
def test_both_engines_give_the_same_answers(pattern: str, flags: str, texts: list[str]) -> None:
    try:
        compiled = compile_pattern(pattern, flags)
    except ValueError:  # the name of a group twice, say
        return
    for text in texts if compiled.is_linear else ():
        expected = compiled.backtracking.search(text, timeout=10.0, concurrent=True) is not None
        assert compiled.occurs_in(text) is expected


@pytest.mark.parametrize(
    ("pattern", "flags"),
    [
        ("(a+)+$", ""),
        ("(x+x+)+y", ""),
        ("^(([a-z])+.)+$", ""),
        ("sorry", ""),
        ("", ""),
        (r"\.", ""),
        ("4-2", "i"),
        (r"[\w.+-]+@[\w-]+\.\w+", "i"),
        (r"\b(?:cannot|can't|won't) (?:help|assist)\b", "i"),
        ("^- .+$", "m"),
        ("(?:^a|b$)", "m"),
        (r"\p{Lu}+", ""),
        ("a??b*?", ""),
        ("(?P<name>a)b", ""),
        ("a{40}", ""),
        ("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", ""),
        ("|".join(f"word {n:03}" for n in range(400)), "i"),
    ],
)
def test_ordinary_patterns_are_linear(pattern: str, flags: str) -> None:
    assert compile_pattern(pattern, flags).obstacle is None


@pytest.mark.parametrize(
    ("pattern", "obstacle", "never"),
    [
        ("a(?=b)", "looking around, (?=...)", True),
        ("(?<!a)b", "looking around, (?<!...)", True),
        (r"(a)\1", "a reference to a group", True),
        (r"(?P<n>a)(?P=n)", "a reference to a group", True),
        (r"a*\B", r"\B", False),
        ("a[ab]{900}c", "too many repetitions", False),
        ("(?:a{40}){30}", "RE2: invalid repetition size", False),
        ("(?>a)", "RE2: invalid", False),
        ("(?m)a$", "flags inside", False),
    ],
)
def test_what_re2_cannot_run_says_why(pattern: str, obstacle: str, never: bool) -> None:
    compiled = compile_pattern(pattern)
    assert (compiled.obstacle or "").startswith(obstacle)
    assert (compiled.is_linear, compiled.never_linear) == (False, never)
    assert compiled.occurs_in("-") in (True, False)


@pytest.mark.parametrize(
    ("pattern", "flags", "text", "occurs"),
    [
        (r"\w", "", "é", False),
        (r"\bfoo\b", "", "éfoo", True),
        (r"\d", "", "\u0663", False),
        (r"\s", "", "\x0b", True),
        ("a$", "", "a\n", False),
        ("a$", "m", "a\nb", True),
        (".", "", "\n", False),
        (".", "s", "\n", True),
        ("é", "i", "É", True),
        ("a{,2}b", "", "aab", True),
        ("a{e<=1}", "", "b", False),
        ("a{e<=1}", "", "a{e<=1}", True),
        ("[[:alpha:]]", "", "a]", True),
        ("(?=a)*b", "", "b", True),
        (r"(?<!\w)a", "", "éa", True),
        ("[]a]", "", "]", True),
    ],
)
def test_patterns_are_pythons_with_ascii_classes(
    pattern: str, flags: str, text: str, occurs: bool
) -> None:
    """Classes and borders know ASCII, ``$`` is the very end, and syntax that only one engine has is
    literal.
    """
    assert compile_pattern(pattern, flags).occurs_in(text) is occurs


@given(
    pattern=st.text(alphabet="ab01(){}[]^$\\|?*+.,:<>=!-kdwsWbBpPux&~é", max_size=12),
    flags=st.sampled_from(["", "i", "m", "s"]),
)
@settings(deadline=None)
def test_any_pattern_compiles_or_is_refused(pattern: str, flags: str) -> None:
    try:
        compiled = compile_pattern(pattern, flags)
    except ValueError:
        return
    assert compiled.occurs_in("ab", limit_s=10.0) in (True, False)


def test_unknown_flags_are_refused() -> None:
    for flags in ("x", "ii", "u"):
        with pytest.raises(ValueError, match="expected each of i, m and s"):
            compile_pattern("a", flags)


def test_spans_count_characters() -> None:
    text = "é1\U0001f60022\ud8003\u2028"
    assert compile_pattern("[0-9]+").spans(text) == [(1, 2), (3, 5), (6, 7)]
    assert compile_pattern("x*").spans("aaaaa") == []
    with pytest.raises(TimeoutError):
        compile_pattern("a[^x]*b|a").spans("a" * 200_000, limit_s=0.01)


def test_without_the_extra_every_pattern_has_a_time_limit(without_re2: None) -> None:
    """Patterns still work, `RuleBased` then prefers a worker process, and the obstacle names the
    extra.
    """
    pattern = compile_pattern("[0-9]+")
    assert (pattern.is_linear, pattern.obstacle) == (False, "the extra re2 is not installed")
    assert pattern.occurs_in("a1")
    assert RuleBased(rules=[Regex(criterion="R", pattern="sorry")]).resolved_execution == "process"
    assert PatternSampler(pattern="refund(s|ed)?").ratio == 1.0


def test_another_package_of_that_name_is_not_taken(
    without_re2: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "re2", __import__("re"))
    assert not compile_pattern("[0-9]+").is_linear


def test_a_forked_child_compiles_its_own_automata() -> None:
    """A thread of the parent may have held a lock of an automaton at the fork."""
    pattern = compile_pattern("fork[0-9]+")
    assert pattern.occurs_in("fork7")
    of_the_parent = module._automaton(pattern.source)
    module._forget_automata()
    assert pattern.occurs_in("fork7")
    assert module._automaton(pattern.source) is not of_the_parent


def test_the_sampler_refuses_what_nothing_can_search_in_linear_time() -> None:
    """It searches in the host's process: the construct is named at load, and what to use instead."""
    with pytest.raises(ConfigurationError, match=r"looking around, \(\?!\.\.\.\).*FunctionSampler"):
        PatternSampler(pattern="error(?! rate)")
    with pytest.raises(ConfigurationError, match="reference to a group"):
        PatternSampler.load({"pattern": r"(.)\1\1\1"})
