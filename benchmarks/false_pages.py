"""False pages: how many alarms the breach detector has in so many verdicts of agents that just meet
their objective.

`python -m benchmarks.false_pages`; ten million verdicts to a false page, by default, allow ten in a
hundred million. Every stream passes exactly as often as its objective asks for, weighted by 1 /
probability.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from agenteval_otel.engine.objectives import BreachSettings
from agenteval_otel.engine.objectives.evidence import BLOCK, SLACK
from agenteval_otel.engine.objectives.simulation import ParallelEvidence

Array = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator], tuple[npt.NDArray[np.bool_], Array, Array]]
"""Of each stream the next verdict that is sampled, its probability, and the least that it could
have had.
"""

STREAMS = 1_000


def even(objective: float) -> Draw:
    """Every answer is seen."""
    certain = np.ones(STREAMS)
    return lambda random: (random.random(STREAMS) < objective, certain, certain)


def preferring(objective: float, baseline: float, *, fails: float, passes: float) -> Draw:
    """A rule picks such a share of failing and of passing answers for sure; of the rest the
    baseline is sampled.
    """
    kinds = np.array(
        [
            # share of all answers, passed, probability
            [(1 - objective) * fails, 0, 1.0],
            [(1 - objective) * (1 - fails), 0, baseline],
            [objective * passes, 1, 1.0],
            [objective * (1 - passes), 1, baseline],
        ]
    )
    seen = kinds[:, 0] * kinds[:, 2]
    edges, least = np.cumsum(seen / seen.sum()), np.full(STREAMS, baseline)

    def draw(random: np.random.Generator) -> tuple[npt.NDArray[np.bool_], Array, Array]:
        kind = np.searchsorted(edges, random.random(STREAMS)).clip(max=3)
        return kinds[kind, 1] == 1, kinds[kind, 2], least

    return draw


def changing(objective: float, *, least: float) -> Draw:
    """A limited rate: the probability of all answers changes every few thousand verdicts, between
    `least` and 1.
    """
    state = {"probability": np.ones(STREAMS)}

    def draw(random: np.random.Generator) -> tuple[npt.NDArray[np.bool_], Array, Array]:
        change = random.random(STREAMS) < 1 / 3_000
        state["probability"] = np.where(
            change, least ** random.random(STREAMS), state["probability"]
        )
        return random.random(STREAMS) < objective, state["probability"], state["probability"]

    return draw


def alarms(
    draw: Draw, objective: float, verdicts: int, settings: BreachSettings, seed: int = 1
) -> int:
    """How many alarms come in so many verdicts, spread over `STREAMS` streams; after each a stream
    starts anew.
    """
    random, count = np.random.default_rng(seed), 0
    evidence = ParallelEvidence(STREAMS, objective=objective, enough=settings.false_alarm_every)
    least, least_now = np.ones(STREAMS), np.ones(STREAMS)
    since = np.zeros(STREAMS, dtype=int)
    for number in range(verdicts // STREAMS):
        passed, probability, possible = draw(random)
        # As `LeastProbability`.
        least_now = np.minimum(least_now, possible)
        fell = possible < least * SLACK
        least = np.where(fell, possible, least)
        if (number + 1) % BLOCK == 0:
            least, least_now = least_now, np.ones(STREAMS)
        evidence.restart(fell)
        since[fell] = 0
        since += 1
        raised = evidence.add(passed, least / probability) & (since >= settings.minimum)
        count += int(raised.sum())
        evidence.restart(raised)
        since[raised] = 0
    return count


def main() -> None:
    """Print a line for each kind of sampling."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.false_pages", description=__doc__)
    parser.add_argument("--verdicts", type=float, default=1e8, help="of each row (default: 1e8)")
    parser.add_argument(
        "--every", type=int, default=BreachSettings().false_alarm_every, help="false_alarm_every"
    )
    arguments = parser.parse_args()
    settings, verdicts = BreachSettings(false_alarm_every=arguments.every), int(arguments.verdicts)
    allowed = verdicts / arguments.every
    print(
        f"{verdicts:,} verdicts a row, exactly at the objective; allowed on average: {allowed:g}\n"
    )
    print("| sampling | objective | false pages |\n|---|---|---|")
    for objective in (0.8, 0.95, 0.99):
        for title, draw in (
            ("every answer", even(objective)),
            (
                "80 % of failures and 10 % of passes for sure, of the rest 5 %",
                preferring(objective, 0.05, fails=0.8, passes=0.1),
            ),
            (
                "failures for sure, of the rest 1 %",
                preferring(objective, 0.01, fails=1.0, passes=0.0),
            ),
            ("a limited rate: probabilities between 1 % and 1", changing(objective, least=0.01)),
        ):
            started = time.perf_counter()
            count = alarms(draw, objective, verdicts, settings)
            print(
                f"| {title} | {objective:g} | {count} |   {time.perf_counter() - started:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
