"""Each deterministic evaluator by itself: microseconds for an answer of 1 KB and of 100 KB, and how
the one grows.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks.goals import at_most, holds
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, standalone
from benchmarks.tables import render

__all__ = ["BENCH"]

_SIZES = {"1 KB": 1_024, "100 KB": 102_400}
_STRAIGHT = 400.0
"""A hundred times the text may take so many times as long; its square would take 10,000."""
_TERMS = "Toxicity, 10,000 terms"
_EDITS = "LexicalSimilarity, levenshtein, 4,000 characters"
_SUITE = (
    "LexicalSimilarity, sorensen-dice",
    "KeywordCoverage, 5 keywords",
    "Sentiment, builtin",
    "Toxicity, 20 terms",
    "RuleBased, includes, 5 keywords",
)


def _each(size: Size) -> Numbers:
    """Microseconds a call, the least of many; what is made ready once is made before."""
    from benchmarks.evaluators import cases, prose

    async def run() -> Numbers:
        found: Numbers = {}
        for name, (evaluator, input_of) in cases().items():
            for words, length in _SIZES.items():
                given = input_of(prose(length))
                criteria = evaluator.criteria()
                await evaluator.evaluate(given, criteria)
                best = float("inf")
                for _ in range(size.of(3, 30) * (10 if length < 10_000 else 1)):
                    began = time.perf_counter()
                    await evaluator.evaluate(given, criteria)
                    best = min(best, time.perf_counter() - began)
                found[f"{name} | {words}"] = best * 1e6
        return found

    return asyncio.run(run())


def _rows(found: dict[str, Numbers]) -> dict[str, tuple[float, float]]:
    numbers = found["each:ours"]
    names = dict.fromkeys(key.partition(" | ")[0] for key in numbers)
    return {name: (numbers[f"{name} | 1 KB"], numbers[f"{name} | 100 KB"]) for name in names}


def _figures(found: dict[str, Numbers]) -> list[Figure]:
    rows = _rows(found)
    worst = max(rows, key=lambda name: rows[name][1] / rows[name][0])
    growth = rows[worst][1] / rows[worst][0]
    terms_ms, edits_ms = rows[_TERMS][1] / 1e3, rows[_EDITS][1] / 1e3
    suite_us = sum(rows[name][0] for name in _SUITE)
    return [
        Figure(
            "the lexical suite (similarity, keywords, sentiment, toxicity, rule), 1 KB",
            "us",
            {"ours": suite_us},
            at_most(suite_us, 150.0),
        ),
        Figure(_EDITS, "ms", {"ours": edits_ms}, at_most(edits_ms, 2.0)),
        Figure(
            f"{_TERMS}, 100 KB, made ready before",
            "ms",
            {"ours": terms_ms},
            at_most(terms_ms, 20.0),
        ),
        Figure(
            f"the steepest from 1 KB to 100 KB: {worst}",
            "x",
            {"ours": growth},
            holds(f"<= {_STRAIGHT:g} (a square: 10,000)", growth <= _STRAIGHT),
        ),
    ]


def _table(found: dict[str, Numbers]) -> str:
    rows = [[name, f"{short:,.1f}", f"{long:,.0f}"] for name, (short, long) in _rows(found).items()]
    return render(["evaluator", "us, 1 KB", "us, 100 KB"], rows)


BENCH = Bench(
    "each",
    "Each evaluator by itself",
    (Phase("each", "ours", _each),),
    _figures,
    rounds=3,
    table=_table,
    notes=(
        "One evaluation of an answer in English prose, on the calling thread; the least of many, the median of "
        "three processes.",
    ),
)

if __name__ == "__main__":
    standalone(BENCH)
