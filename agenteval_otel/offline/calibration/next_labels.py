"""The answers that people should label next: those where a label tells most.

Each comes with the probability that it was picked.
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
    """Holds an answer to label, and the probability with which it was picked.

    It was picked of those without a label.
    """

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
    waiting.sort(key=lambda answer: _digest_of(f"{seed}\0{answer.key}"))
    if count >= len(waiting):
        return [Pick(answer, 1.0) for answer in waiting]
    labelled = [answer for answer in answers if answer.person is not None]
    sizes = _sizes(waiting, labelled, threshold)
    probabilities = _probabilities(sizes, count)
    # 56 bits of the digest, as a number from 0 to 1
    start = int.from_bytes(_digest_of(f"start\0{seed}")[:7], "big") / (1 << 56)
    picks: list[Pick] = []
    reached = 0.0
    for answer, probability in zip(waiting, probabilities, strict=True):
        reached += probability
        if reached > start + len(picks):
            picks.append(Pick(answer, probability))
    return picks


def _digest_of(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


def _sizes(
    waiting: Sequence[JudgedAnswer], labelled: Sequence[JudgedAnswer], threshold: float | None
) -> list[float]:
    verdicts = Counter((row.passed, row.person) for row in labelled)
    deviation = {}
    for verdict in (True, False):
        passed = verdicts[verdict, True] + _PSEUDO
        failed = verdicts[verdict, False] + _PSEUDO
        deviation[verdict] = math.sqrt(passed * failed) / (passed + failed)
    groups: Counter[tuple[str, str]] = Counter()
    for row in labelled:
        groups.update(_groups_of(row))
    scores = [answer.score for answer in waiting if answer.score is not None]
    spread = 0.0
    if threshold is not None and scores:
        spread = max(scores) - min(scores)
    sizes = []
    for answer in waiting:
        size = deviation[bool(answer.passed)]
        if threshold is not None and answer.score is not None and spread > 0:
            distance = abs(answer.score - threshold) / spread
            size *= 1.0 - 0.8 * min(1.0, distance)
        for group in _groups_of(answer):
            missing = max(0, _ENOUGH - groups[group])
            size *= 1.0 + missing / _ENOUGH
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
