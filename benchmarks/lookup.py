"""Ground truth: what a lookup takes among 100,000 rows, whatever is asked, and what reading the
file takes.
"""

from __future__ import annotations

import csv
import random
import tempfile
import time
import tracemalloc
from pathlib import Path

from benchmarks.goals import at_most
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, standalone

__all__ = ["BENCH"]

_ROWS = 100_000
_LIMIT_US = 1_000.0


def _questions(count: int) -> list[str]:
    """Questions that begin alike and are made of the same three thousand words, as real ones are."""
    chance = random.Random(5)
    words = [
        "".join(chance.choices("etaoinshrdlucm", k=chance.randint(3, 9))) for _ in range(3_000)
    ]
    beginnings = (
        "how do i",
        "where can i find the",
        "what is the",
        "can you tell me about the",
        "why does my",
    )
    return [
        f"{chance.choice(beginnings)} {' '.join(chance.choices(words, k=chance.randint(3, 9)))} {number}?"
        for number in range(count)
    ]


def _asked(questions: list[str]) -> dict[str, list[str]]:
    chance = random.Random(6)
    some = chance.sample(questions, 200)
    filler = " ".join(questions[:300]).replace("?", "")
    return {
        "the same question": [one.upper() for one in some],
        "a row in the prompt": [f"Hello, {one} Thanks." for one in some],
        "the prompt in a row": [" ".join(one.split()[2:-1]) for one in some],
        "frequent words only": ["what is the", "can you tell me about the", "where can i find the"],
        "no such question": [" ".join(reversed(one.split())) for one in some],
        "no such question, 10 KB": [filler[at : at + 10_000] for at in range(0, 5_000, 1_000)],
    }


def _lookups(size: Size) -> Numbers:
    """Microseconds a lookup: the mean over the prompts of a kind, the least of several rounds."""
    from agenteval_otel.ground_truth import FileGroundTruthStore
    from agenteval_otel.models import EvaluationInput

    questions = _questions(size.of(_ROWS // 10, _ROWS))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("UserPrompt", "ExpectedOutput", "Category", "Module"))
            writer.writerows(
                (one, f"Answer {number}.", "", f"M{number % 3}")
                for number, one in enumerate(questions)
            )
        began = time.perf_counter()
        store = FileGroundTruthStore(path=path)
        found = {"load_s": time.perf_counter() - began}
        if size.name != "quick":
            tracemalloc.start()
            again = FileGroundTruthStore(path=path)
            found["held_mib"] = tracemalloc.get_traced_memory()[0] / 2**20
            tracemalloc.stop()
            del again
    for kind, prompts in _asked(questions).items():
        inputs = [EvaluationInput(prompt=prompt, agent="support") for prompt in prompts]
        best = float("inf")
        for _ in range(size.of(2, 7)):
            began = time.perf_counter()
            for one in inputs:
                store.find(one)
            best = min(best, (time.perf_counter() - began) / len(inputs))
        found[kind] = best * 1e6
    return found


def _figures(found: dict[str, Numbers]) -> list[Figure]:
    numbers = dict(found["lookup:ours"])
    load_s, held_mib = numbers.pop("load_s"), numbers.pop("held_mib", None)
    lines = [
        Figure(f"lookup, {kind}", "us", {"ours": taken}, at_most(taken, _LIMIT_US))
        for kind, taken in numbers.items()
    ]
    return [
        *lines,
        Figure("reading the file", "s", {"ours": load_s}),
        Figure("memory", "MiB", {"ours": held_mib}),
    ]


BENCH = Bench(
    "lookup",
    "Ground truth: a lookup among 100,000 rows",
    (Phase("lookup", "ours", _lookups),),
    _figures,
    rounds=3,
    notes=(
        "A CSV file of questions in three modules, asked by an agent whose name has no rows: among all.",
    ),
)

if __name__ == "__main__":
    standalone(BENCH)
