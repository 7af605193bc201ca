"""`python -m benchmarks intervals`: how often 95 % intervals hold the truth, where answers are sampled
unevenly, and where turns of a conversation are alike.

Weighted rates are `UnitSums`, as the process, the pages and (by other words) PromQL compute them;
rates of conversations are `Totals`, as `evaluate` and reports show them, with and without the ids.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from agenteval_otel.models.intervals import Estimate, UnitSums
from agenteval_otel.offline.reports.totals import Totals
from benchmarks.turns import Traffic

RATES = 0.5, 0.9, 0.99
SIZES = 20, 50, 200, 2_000
CONVERSATIONS = (
    Traffic("answers alone", 0.9),
    Traffic("conversations of 5, alike by 0.3", 0.9, 5, 0.3),
    Traffic("conversations of 10, alike by 0.3", 0.9, 10, 0.3),
    Traffic("conversations of 10, alike by 0.6", 0.9, 10, 0.6),
)
_TURNS = 200
_RARELY = 0.05  # in fewer samples nothing can be said of their intervals

Design = Callable[[random.Random, float], tuple[bool, float]]
"""Draws an answer of a population of which such a share passes: whether it passes, and the
probability with which it is seen.
"""


def even(draw: random.Random, rate: float) -> tuple[bool, float]:
    """Every answer is seen."""
    return draw.random() < rate, 1.0


def first_of(draw: random.Random, rate: float) -> tuple[bool, float]:
    """What looks like a failure for sure, every second slow answer, one in twenty of the rest."""
    passes = draw.random() < rate
    if draw.random() < (0.05 if passes else 0.7):
        return passes, 1.0
    return passes, 0.5 if draw.random() < 0.1 else 0.05


def escalation(draw: random.Random, rate: float) -> tuple[bool, float]:
    """What looks like a failure for sure, one in fifty of the rest."""
    passes = draw.random() < rate
    return passes, 1.0 if draw.random() < (0.05 if passes else 0.7) else 0.02


def rate_limit(draw: random.Random, rate: float) -> tuple[bool, float]:
    """As many answers in every hour, crowded or quiet."""
    return draw.random() < rate, draw.choices((1.0, 0.1, 0.05), (0.25, 0.225, 0.525))[0]


def load_shedding(draw: random.Random, rate: float) -> tuple[bool, float]:
    """One in ten in crowded hours, in which three times as many fail."""
    crowded = draw.random() < 0.5
    passes = draw.random() >= (1 - rate) * (1.5 if crowded else 0.5)
    return passes, 0.1 if crowded else 1.0


DESIGNS: dict[str, Design] = {
    "even": even,
    "first_of: flagged 1, slow 0.5, rest 0.05": first_of,
    "escalation, baseline 0.02": escalation,
    "rate_limit": rate_limit,
    "load shedding in bad hours": load_shedding,
}


LEAST: dict[Design, float] = {first_of: 0.05, escalation: 0.02}
"""The least probability, where the sampler knows it."""


def seen(design: Design, draw: random.Random, rate: float) -> Iterator[tuple[bool, float]]:
    """Yield the answers that are seen, without end."""
    while True:
        passes, probability = design(draw, rate)
        if draw.random() < probability:
            yield passes, probability


def coverage_of_weights(
    design: Design, size: int, rate: float, repeats: int
) -> tuple[float, float]:
    """Return the share of samples of so many answers that show an interval, and the share of those
    intervals that hold the truth.
    """
    draw, shown, held = random.Random(1), 0, 0
    least = LEAST.get(design, 1.0)
    for _ in range(repeats):
        sums = UnitSums()
        for passes, probability in islice(seen(design, draw, rate), size):
            sums.add(float(passes), 1 / probability, is_baseline=probability <= 2 * least)
        estimate = sums.estimate()
        if estimate is not None and estimate.has_interval:
            shown += 1
            held += holds(estimate, rate)
    return shown / repeats, held / max(shown, 1)


def coverage_of_conversations(
    traffic: Traffic, repeats: int, *, with_ids: bool
) -> tuple[float, float]:
    """Return the share of runs of 200 turns whose interval holds the truth, and its mean width."""
    held, width = 0, 0.0
    for seed in range(repeats):
        totals = Totals()
        for verdict in islice(traffic.verdicts(seed), _TURNS):
            result = EvaluationResult(
                criterion_name="a", evaluator_type="Judge", passed=verdict.passed, score=1.0
            )
            unit = verdict.unit if with_ids else None
            totals.add(AggregatedEvaluationResult(conversation_id=unit, results=(result,)))
        estimate = totals.criteria[0].pass_rate
        assert estimate is not None
        held += holds(estimate, traffic.rate)
        width += estimate.high - estimate.low
    return held / repeats, width / repeats


def cell(shown: float, held: float) -> str:
    """Return the coverage, and in how many of the samples an interval is shown, if not in all."""
    if shown < _RARELY:
        return "not shown"
    return f"{100 * held:.1f}" + ("" if shown == 1 else f" (shown in {100 * shown:.0f} %)")


def holds(estimate: Estimate | None, truth: float) -> bool:
    return estimate is not None and estimate.low <= truth <= estimate.high


def main(arguments: Sequence[str]) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks intervals", description=__doc__)
    parser.add_argument("--repeats", type=int, default=1_000, help="of each cell (default: 1000)")
    repeats = parser.parse_args(arguments).repeats
    print(
        f"Coverage of weighted 95 % intervals, %, {repeats:,} samples each, that pass at "
        f"{' / '.join(map(str, RATES))}\n"
    )
    print(f"| sampling | {' | '.join(f'{size:,} seen' for size in SIZES)} |")
    print(f"|---{'|---' * len(SIZES)}|")
    for name, design in DESIGNS.items():
        cells = [
            " / ".join(cell(*coverage_of_weights(design, size, rate, repeats)) for rate in RATES)
            for size in SIZES
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print(
        f"\nCoverage of 95 % intervals of {_TURNS} turns, 90 % of which pass, {repeats:,} runs each; "
        "in brackets their mean width\n\n| traffic | with ids | without |\n|---|---|---|"
    )
    for traffic in CONVERSATIONS:
        cells = []
        for with_ids in (True, False):
            share, width = coverage_of_conversations(traffic, repeats, with_ids=with_ids)
            cells.append(f"{100 * share:.1f} ({width:.3f})")
        print(f"| {traffic.name} | {' | '.join(cells)} |", flush=True)
