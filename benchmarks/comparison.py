"""Comparisons of answers in simulation: how often intervals hold the truth and tests are wrong,
under uneven sampling and in conversations; and how long a comparison of 20,000 answers takes."""

from __future__ import annotations

import json
import math
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agenteval_otel.models.intervals import UnitMean
from agenteval_otel.offline.comparison import ComparedSource, Options, compare, statistics
from agenteval_otel.offline.comparison.statistics import ALPHA, Difference
from agenteval_otel.storage.summaries import ScoreColumns, summarise
from benchmarks.goals import Goal, at_least, at_most, holds
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, standalone

__all__ = ["BENCH"]

Array = npt.NDArray[np.float64]
_PERMUTATIONS = 299
_LOOKS = 200


class Traffic(NamedTuple):
    """One side of a comparison, and how it is sampled.

    Attributes:
        conversations: How many there are; of one answer, or of one to eight with a quality of their
            own.
        uneven: 70 % of the failures and 10 % of the passes are sampled with 0.5, all others with
            0.05.
        continuous: Scores between 0 and 1 instead of passes and failures.
    """

    name: str
    conversations: int
    mean: float
    long: bool = False
    uneven: bool = False
    continuous: bool = False

    def draw(self, rng: np.random.Generator, change: float = 0.0) -> ScoreColumns:
        """Return the scores that were sampled, in the order of time."""
        mean, count = self.mean + change, self.conversations
        lengths = rng.integers(1, 9, count) if self.long else np.ones(count, dtype=int)
        number = np.repeat(np.arange(count), lengths)
        quality = rng.beta(6 * mean, 6 * (1 - mean), count) if self.long else np.full(count, mean)
        scores = (rng.random(len(number)) < quality[number]).astype(float)
        if self.continuous:
            # of the mean 0, within what is left of [0, 1]
            noise = rng.beta(3, 3, len(number)) - 0.5
            scores = quality[number] + 2 * noise * np.minimum(quality[number], 1 - quality[number])
        weights = np.ones(len(number))
        if self.uneven:
            picked = rng.random(len(number)) < np.where(scores < 0.5, 0.7, 0.1)
            probability = np.where(picked, 0.5, 0.05)
            kept = rng.random(len(number)) < probability
            number, scores, weights = number[kept], scores[kept], 1 / probability[kept]
        _, number = np.unique(number, return_inverse=True)  # conversations that were sampled
        return _of_one_criterion(scores, weights, number)


_TRAFFIC = (
    Traffic("100 answers", 100, 0.9),
    Traffic("single answers", 300, 0.9),
    Traffic("conversations", 100, 0.85, long=True),
    Traffic("uneven sampling", 5_000, 0.93, uneven=True),
    Traffic("conversations, uneven sampling", 1_000, 0.9, long=True, uneven=True),
    Traffic("scores 0 to 1, conversations", 80, 0.75, long=True, continuous=True),
    Traffic(
        "scores 0 to 1, conversations, uneven", 800, 0.75, long=True, uneven=True, continuous=True
    ),
)


def _of_one_criterion(scores: Array, weights: Array, number: npt.NDArray[np.int64]) -> ScoreColumns:
    is_baseline, one_group = np.ones(len(scores), np.bool_), np.zeros(len(scores), np.int8)
    return ScoreColumns(scores, weights, number, is_baseline, one_group)


def _mean(scores: ScoreColumns) -> UnitMean:
    (mean,) = summarise(scores, 1)
    assert mean is not None  # some answers are sampled
    return mean


def _pairs(rng: np.random.Generator, traffic: Traffic, change: float = 0.0) -> ScoreColumns:
    """Return the differences of pairs of answers to the same inputs.

    80 % score the same on both sides, the others by themselves.
    """
    rows = traffic._replace(uneven=False)
    count = rows.conversations
    lengths = rng.integers(1, 9, count) if rows.long else np.ones(count, dtype=int)
    number = np.repeat(np.arange(count), lengths)
    quality = (
        rng.beta(6 * rows.mean, 6 * (1 - rows.mean), count)
        if rows.long
        else np.full(count, rows.mean)
    )
    a = (rng.random(len(number)) < quality[number]).astype(float)
    b = np.where(
        rng.random(len(number)) < 0.8, a, rng.random(len(number)) < quality[number]
    ).astype(float)
    b = np.where(rng.random(len(number)) < -change / rows.mean, 0.0, b)
    return _of_one_criterion(b - a, np.ones(len(number)), number)


def _unpaired(
    rng: np.random.Generator, traffic: Traffic, change: float
) -> tuple[Difference, UnitMean, UnitMean]:
    a, b = _mean(traffic.draw(rng)), _mean(traffic.draw(rng, change))
    return statistics.unpaired(a, b), a, b


def _coverage(size: Size) -> Numbers:
    """The share of the 95 % intervals that hold the true difference, a drop of five points."""
    rng, runs, numbers = np.random.default_rng(1), size.of(200, 4_000, 20_000), {}
    for traffic in _TRAFFIC:
        drawn = [_unpaired(rng, traffic, -0.05)[0] for _ in range(runs)]
        numbers[traffic.name] = float(np.mean([item.low <= -0.05 <= item.high for item in drawn]))
    for traffic in (_TRAFFIC[1], _TRAFFIC[2]._replace(conversations=200)):
        drawn_pairs = (_pairs(rng, traffic, -0.05) for _ in range(runs))
        gaps = [
            statistics.paired(_mean(pairs), statistics.clusters_of(pairs, 1), 0)
            for pairs in drawn_pairs
        ]
        truth = float(np.mean([item.value for item in gaps])) if runs > 1_000 else math.nan
        truth = -0.05 if math.isnan(truth) else truth
        numbers[f"pairs of {traffic.name}"] = float(
            np.mean([item.low <= truth <= item.high for item in gaps])
        )
    return numbers


def _tests(size: Size) -> Numbers:
    """Wrong claims where nothing changed, and drops of the promised size that are found."""
    rng, runs, numbers = np.random.default_rng(2), size.of(40, 600, 4_000), {}
    for traffic in _TRAFFIC:
        promised = float(
            np.mean(
                [
                    statistics.detectable(difference, a.estimate(), b.estimate(), 1)
                    for difference, a, b in (_unpaired(rng, traffic, 0.0) for _ in range(50))
                ]
            )
        )
        for kind, change in (("wrong", 0.0), ("found", -promised)):
            p_values = [
                statistics.permuted_labels(
                    statistics.clusters_of(traffic.draw(rng), 1),
                    statistics.clusters_of(traffic.draw(rng, change), 1),
                    rng,
                    most=_PERMUTATIONS,
                )[0]
                for _ in range(runs)
            ]
            numbers[f"{kind} {traffic.name}"] = float(np.mean(np.array(p_values) <= ALPHA))
        numbers[f"size {traffic.name}"] = promised
    traffic = _TRAFFIC[1]
    p_values = [
        statistics.flipped_signs(
            statistics.clusters_of(_pairs(rng, traffic), 1), rng, most=_PERMUTATIONS
        )[0]
        for _ in range(runs)
    ]
    return {**numbers, "wrong pairs": float(np.mean(np.array(p_values) <= ALPHA))}


def _sequential(size: Size) -> Numbers:
    """Experiments that are looked at 200 times: the share that is ever called, with and without a
    change.
    """
    rng, runs, numbers = np.random.default_rng(3), size.of(40, 400, 4_000), {}
    for traffic in _TRAFFIC[1:]:
        whole = traffic._replace(conversations=traffic.conversations * 10)
        for kind, change in (("wrong", 0.0), ("found", -0.05)):
            numbers[f"{kind} {traffic.name}"] = float(
                np.mean([_is_called(rng, whole, change) for _ in range(runs)])
            )
    return numbers


def _is_called(rng: np.random.Generator, traffic: Traffic, change: float) -> bool:
    sides = [traffic.draw(rng), traffic.draw(rng, change)]
    for look in range(1, _LOOKS + 1):
        means = []
        for scores in sides:
            conversations = int(scores.units.max()) + 1
            seen = scores.units < max(2, conversations * look // _LOOKS)
            means.append(_mean(ScoreColumns(*(values[seen] for values in scores))))
        _, p = statistics.at_any_time(
            statistics.unpaired(*means), min(mean.kish_units for mean in means)
        )
        if p <= ALPHA:
            return True
    return False


def _speed(size: Size) -> Numbers:
    """Two files of results, of 10,000 or 20,000 answers each, with five criteria: CPU time of the
    comparison.
    """
    numbers = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, count in (
            ("10,000 a side", size.of(500, 10_000)),
            ("20,000 a side", size.of(1_000, 20_000)),
        ):
            paths = [Path(folder) / f"{side}.jsonl" for side in "ab"]
            for path in paths:
                path.write_text("\n".join(_lines(count, str(path))))
            for kind, options in (("pairs", Options()), ("two samples", Options(pairs=False))):
                began = time.process_time()
                compare(*(list(ComparedSource(str(path)).answers()) for path in paths), options)
                numbers[f"{name}, {kind}"] = time.process_time() - began
    return numbers


def _lines(count: int, seed: str) -> Iterator[str]:
    rng = random.Random(seed)
    text = "The parcel left the depot this morning and arrives tomorrow before noon. " * 4
    for number in range(count):
        results = [
            {
                "criterionName": f"criterion_{index}",
                "evaluatorType": "Contains",
                "evaluatorVersion": "1",
                "score": value,
                "normalized": value,
                "passed": value > 0.5,
                "label": "pass",
                "probability": rng.choice((0.05, 0.5, 1.0)),
            }
            for index in range(5)
            for value in (float(rng.random() < 0.9),)
        ]
        asked = {
            "prompt": f"Where is parcel {number}?",
            "response": text,
            "conversationId": f"c{number // 3}",
        }
        yield json.dumps(
            {"results": results, "timestamp": 1_790_000_000_000 + number, "inputSnapshot": asked}
        )


def _figures(found: dict[str, Numbers]) -> list[Figure]:
    def figures(
        phase: str, words: str, unit: str, goal: Callable[[float], Goal | None], kind: str = ""
    ) -> list[Figure]:
        return [
            Figure(
                f"{words}: {name[len(kind) :]}",
                unit,
                {"ours": value * (100 if unit == "%" else 1)},
                goal(value),
            )
            for name, value in found[f"{phase}:ours"].items()
            if name.startswith(kind)
        ]

    return [
        *figures(
            "coverage",
            "95 % intervals that hold the truth",
            "%",
            lambda value: holds("94 to 96, 93.3 in simulation", 0.933 <= value <= 0.967),
        ),
        *figures(
            "tests",
            "wrong claims, one look",
            "%",
            lambda value: at_most(100 * value, 6.8),
            "wrong ",
        ),
        *figures(
            "tests",
            "drops of the promised size found",
            "%",
            lambda value: at_least(100 * value, 76.0),
            "found ",
        ),
        *figures("tests", "the promised size", "points", lambda _: None, "size "),
        *figures(
            "sequential",
            "wrong claims at 200 looks",
            "%",
            lambda value: at_most(100 * value, 5.0),
            "wrong ",
        ),
        *figures("sequential", "drops of 0.05 found at 200 looks", "%", lambda _: None, "found "),
        *figures("speed", "reading and comparing, CPU", "s", lambda value: at_most(value, 5.0)),
    ]


BENCH = Bench(
    "comparison",
    "Comparisons of answers, in simulation",
    tuple(
        Phase(name, "ours", run)
        for name, run in (
            ("coverage", _coverage),
            ("tests", _tests),
            ("sequential", _sequential),
            ("speed", _speed),
        )
    ),
    _figures,
    notes=(
        "By chance 4,000 intervals are off by up to 0.7 points of 95 %, 600 tests by 1.8 of 5 and 3.3 of 80 %.",
    ),
)

if __name__ == "__main__":
    standalone(BENCH)
