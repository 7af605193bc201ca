"""The evaluators that the benchmarks run, in a module of their own: a child process can import them by name."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from typing import Any, ClassVar

from agenteval_otel.evaluators import CriterionEvaluator, KeywordCoverage, ResponseHealth, RuleBased
from agenteval_otel.models import EvaluationInput, Score

__all__ = ["Busy", "Hung", "Trivial", "Waiting", "busy", "eight", "loops_for"]

KEYWORDS = ("Paris", "capital", "France", "government", "Seine")
LEGAL = ("liability", "warranty", "indemnity")


class Trivial(CriterionEvaluator, type="BenchmarkTrivial"):
    """Scores 1, at once."""

    criterion_name: str = "trivial"

    @property
    def lane(self) -> Any:
        return "free"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        return Score(value=1.0)


class Waiting(CriterionEvaluator, type="BenchmarkWaiting"):
    """A judge: waits, then scores 1; with `mark` it appends a byte to that file when it has."""

    criterion_name: str = "waiting"
    wait_s: float = 0.02
    mark: str = ""

    async def score(self, evaluation_input: EvaluationInput) -> Score:
        await asyncio.sleep(self.wait_s)
        if self.mark:
            note(self.mark)
        return Score(value=1.0)


class Hung(CriterionEvaluator, type="BenchmarkHung"):
    """A judge that never answers; `entered` counts those that wait for it."""

    entered: ClassVar[Any] = itertools.count()
    criterion_name: str = "hung"

    async def score(self, evaluation_input: EvaluationInput) -> Score:
        next(self.entered)
        await asyncio.Event().wait()
        return Score(value=1.0)


class Busy(CriterionEvaluator, type="BenchmarkBusy"):
    """Pure Python that holds the interpreter for as many turns as it is told."""

    criterion_name: str = "busy"
    loops: int = 100_000

    @property
    def lane(self) -> Any:
        return "cpu"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        busy(self.loops)
        return Score(value=1.0)


def busy(loops: int) -> int:
    """Pure Python work."""
    total = 0
    for index in range(loops):
        total += index & 7
    return total


def loops_for(seconds: float) -> int:
    """How many turns take so long here, undisturbed."""
    best = float("inf")
    for _ in range(10):
        began = time.perf_counter()
        busy(20_000)
        best = min(best, time.perf_counter() - began)
    return max(1, round(20_000 * seconds / best))


def note(path: str) -> None:
    """Append a byte to the file, in one write."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, b".")
    os.close(handle)


def eight() -> list[Any]:
    """All deterministic evaluators that the package has, some of them twice with other settings: eight criteria."""

    def rule(name: str, **check: Any) -> RuleBased:
        return RuleBased.load({"rules": [{"criterionName": name, "config": check}]})

    return [
        ResponseHealth(),
        rule("length", type="length", min=10, max=5_000),
        rule("mentions", type="includes", keywords=["Paris"], caseSensitive=False),
        rule("no_promise", type="regex", pattern=r"\bguarantee(d|s)?\b", flags="i", expectedOutcome="no_match"),
        rule("names_a_year", type="regex", pattern=r"\b(19|20)\d\d\b", expectedOutcome="no_match"),
        KeywordCoverage(expected_keywords=KEYWORDS, criterion_name="coverage"),
        KeywordCoverage(expected_keywords=LEGAL, match_whole_word=False, criterion_name="legal"),
        KeywordCoverage(expected_keywords=("since", "because"), case_sensitive=True, criterion_name="reasons"),
    ]
