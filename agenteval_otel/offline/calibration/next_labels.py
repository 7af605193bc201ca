"""Which answers people should label next: where a label tells most, each with the probability that
it was picked.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from agenteval_otel.offline.calibration.measure import JudgedAnswer

_ENOUGH: Final = 30  # labels of a slice
_FLOOR: Final = 0.2  # of the mean size: every answer can be picked
_PSEUDO: Final = 0.5


class Pick(NamedTuple):
    """An answer to label, and the probability with which it was picked of those without a label."""

    answer: JudgedAnswer
    probability: float


def next_labels(
    answers: Sequence[JudgedAnswer], count: int, *, threshold: float | None = None, seed: int = 0
) -> list[Pick]:
    """Pick so many answers without a label.

    The same answers and seed give the same picks, whatever the order.

    An answer's size is the standard deviation of people's verdicts where the judge's is the same,
    times how near its score is to the threshold, times up to 2 for each slice and system with fewer
    than 30 labels. It is at least 0.2 of the mean. The picks are drawn systematically with
    probabilities in proportion to their size, so that labels weighted by 1 / probability still
    stand for all.
    """
    waiting = [answer for answer in answers if answer.person is None and answer.passed is not None]
    waiting.sort(
        key=lambda answer: hashlib.sha256(
            f"{seed}\0{answer.key}".encode("utf-8", "replace")
        ).digest()
    )
    if count >= len(waiting):
        return [Pick(answer, 1.0) for answer in waiting]
    sizes = _sizes(waiting, [answer for answer in answers if answer.person is not None], threshold)
    probabilities = _probabilities(sizes, count)
    at = int.from_bytes(hashlib.sha256(f"start\0{seed}".encode()).digest()[:7], "big") / (1 << 56)
    picks: list[Pick] = []
    reached = 0.0
    for answer, probability in zip(waiting, probabilities, strict=True):
        reached += probability
        if reached > at + len(picks):
            picks.append(Pick(answer, probability))
    return picks


def _sizes(
    waiting: Sequence[JudgedAnswer], labelled: Sequence[JudgedAnswer], threshold: float | None
) -> list[float]:
    both = Counter((row.passed, row.person) for row in labelled)
    deviation = {}
    for verdict in (True, False):
        passed = both[verdict, True] + _PSEUDO
        failed = both[verdict, False] + _PSEUDO
        deviation[verdict] = math.sqrt(passed * failed) / (passed + failed)
    groups = Counter(group for row in labelled for group in _groups_of(row))
    scores = [answer.score for answer in waiting if answer.score is not None]
    spread = max(scores) - min(scores) if threshold is not None and scores else 0.0
    sizes = []
    for answer in waiting:
        size = deviation[bool(answer.passed)]
        if threshold is not None and answer.score is not None and spread > 0:
            size *= 1.0 - 0.8 * min(1.0, abs(answer.score - threshold) / spread)
        for group in _groups_of(answer):
            size *= 1.0 + max(0, _ENOUGH - groups[group]) / _ENOUGH
        sizes.append(size)
    floor = _FLOOR * math.fsum(sizes) / len(sizes)
    return [max(size, floor) for size in sizes]


def _groups_of(answer: JudgedAnswer) -> list[tuple[str, str]]:
    groups = [("system", answer.system), *answer.slices.items()]
    return [group for group in groups if group[1]]


def _probabilities(sizes: Sequence[float], count: int) -> list[float]:
    """Return min(1, c size) for each size, with the c for which they add up to the count."""
    certain: set[int] = set()
    while True:
        rest = math.fsum(size for position, size in enumerate(sizes) if position not in certain)
        factor = (count - len(certain)) / rest
        more = {
            position
            for position, size in enumerate(sizes)
            if position not in certain and size * factor >= 1.0
        }
        if not more:
            return [
                1.0 if position in certain else size * factor for position, size in enumerate(sizes)
            ]
        certain |= more
