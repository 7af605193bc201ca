"""Patterns: which are searched in linear time, and that both engines give the same answers."""

from __future__ import annotations

import os
from typing import Any

import pytest
import re2
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.runtime.patterns import compile_pattern
from agenteval_otel.sampling import PatternSampler
from tests.promises.programs import run_program

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
    st.text(alphabet="aabBkKsS_1- .{\n\x0b\u017f\u212a\u2028éÉ\U0001f600\ud800A\0", max_size=10),
    min_size=1,
    max_size=6,
)


@given(pattern=patterns(), flags=st.sampled_from(["", "", "i", "m", "s", "ims"]), texts=TEXTS)
@example(pattern=r"[\W1]", flags="i", texts=["K", "s", "\u212a", "\u017f"])
@example(pattern=r"\b\w", flags="i", texts=["\u212a", "\u017f"])
@settings(max_examples=100)
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
        (r"\u2028", "", "a\u2028", True),
        (r"\U0001f600", "", "\U0001f600", True),
        (r"\u002e", "", "a", False),
    ],
)
def test_patterns_are_pythons_with_ascii_classes(
    pattern: str, flags: str, text: str, occurs: bool
) -> None:
    """Classes and borders know ASCII, ``$`` is the very end, syntax that only one engine has is
    literal, and the number of a character is that character.
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


WITHOUT_RE2 = """
    import re, sys
    sys.modules["re2"] = {"absent": None, "another": re}[sys.argv[1]]
    from agenteval_otel.evaluators import Regex, RuleBased
    from agenteval_otel.runtime.patterns import compile_pattern
    from agenteval_otel.sampling import PatternSampler

    pattern = compile_pattern("[0-9]+")
    print("obstacle", pattern.obstacle)
    print("found", pattern.is_linear, pattern.occurs_in("a1"))
    print("runs", RuleBased(rules=[Regex(criterion="R", pattern="sorry")]).resolved_execution)
    print("ratio", PatternSampler(pattern="refund(s|ed)?").ratio)
"""


@pytest.mark.parametrize("package", ["absent", "another"])
def test_without_the_extra_every_pattern_has_a_time_limit(package: str) -> None:
    """Patterns still work, `RuleBased` then prefers a worker process, and the obstacle names the
    extra. Another package of that name is not taken for it.
    """
    finished = run_program(WITHOUT_RE2, package)
    assert finished.lines("obstacle") == ["the extra re2 is not installed"], finished.stderr
    assert finished.lines("found") == ["False True"]
    assert finished.lines("runs") == ["process"]
    assert finished.lines("ratio") == ["1.0"]


def test_a_forked_child_compiles_its_own_automata(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of the parent may have held a lock of an automaton at the fork."""
    compiled: list[str] = []
    compile_automaton = re2.compile

    def noted(source: str, options: Any) -> Any:
        compiled.append(source)
        return compile_automaton(source, options)

    pattern = compile_pattern("fork[0-9]+")
    monkeypatch.setattr(re2, "compile", noted)
    assert pattern.occurs_in("fork7")
    assert compiled == []
    pid = os.fork()
    if pid == 0:
        os._exit(len(compiled) if pattern.occurs_in("fork7") else 99)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1


def test_the_sampler_refuses_what_nothing_can_search_in_linear_time() -> None:
    """It searches in the host's process: the construct is named at load, and what to use instead."""
    with pytest.raises(ConfigurationError, match=r"looking around, \(\?!\.\.\.\).*FunctionSampler"):
        PatternSampler(pattern="error(?! rate)")
    with pytest.raises(ConfigurationError, match="reference to a group"):
        PatternSampler.load({"pattern": r"(.)\1\1\1"})
