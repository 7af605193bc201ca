"""Simulated verdicts whose truth is known: turns of conversations that are alike, days that come and
go, failures that come in runs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import NamedTuple

_DAY = 10_000  # verdicts


class Verdict(NamedTuple):
    """Whether a turn passes, its conversation, and why it fails. None: alone, or for no known
    reason.
    """

    passed: bool
    unit: str | None = None
    cause: str | None = None


class Traffic(NamedTuple):
    """Verdicts of an agent.

    Attributes:
        name: In tables.
        rate: The share that passes, on average.
        size: Turns of a conversation. 1: answers alone.
        alike: The correlation of two turns of one conversation.
        beside: How many conversations run at a time.
        swing: The rate goes up and down by so much within 10,000 verdicts.
        run: Failures come in runs of so many, each of one reason.
    """

    name: str
    rate: float
    size: int = 1
    alike: float = 0.0
    beside: int = 1
    swing: float = 0.0
    run: int = 1

    def verdicts(self, seed: int, *, drop_at: int = 0, drop_to: float = 0.0) -> Iterator[Verdict]:
        """Yield verdicts without end. From the number `drop_at` on, if there is one, so many pass,
        in conversations that are running too.
        """
        draw, number, failing = random.Random(seed), 0, 0
        conversations = [_Conversation(self, draw) for _ in range(self.beside)]
        while True:
            number += 1
            rate = self.rate + self.swing * math.sin(2 * math.pi * number / _DAY)
            if drop_at and number > drop_at:
                rate = drop_to
            if number == drop_at + 1:
                for conversation in conversations:
                    conversation.quality = None
            if self.run > 1:
                # As many failures as of others, in runs.
                if not failing and draw.random() < (1 - rate) / self.run:
                    failing = self.run
                passed, failing = not failing, max(0, failing - 1)
                yield Verdict(passed, str(number), None if passed else "empty")
            else:
                yield draw.choice(conversations).turn(rate)


class _Conversation:
    def __init__(self, traffic: Traffic, draw: random.Random) -> None:
        self._traffic, self._draw = traffic, draw
        self.quality: float | None = None
        self._begin()
        # Those that run at the same time are not all as far.
        self._left = draw.randint(1, traffic.size) if traffic.beside > 1 else traffic.size

    def turn(self, rate: float) -> Verdict:
        if self.quality is None:
            self.quality = self._quality(rate)
        verdict = Verdict(
            self._draw.random() < self.quality, self._unit if self._traffic.size > 1 else None
        )
        self._left -= 1
        if not self._left:
            self._begin()
        return verdict

    def _begin(self) -> None:
        self._unit, self._left = f"{self._draw.getrandbits(64):x}", self._traffic.size
        self.quality = None

    def _quality(self, rate: float) -> float:
        alike = self._traffic.alike
        if alike <= 0 or not 0 < rate < 1:
            return rate
        if alike >= 1:
            return float(self._draw.random() < rate)
        scale = (1 - alike) / alike
        return self._draw.betavariate(rate * scale, (1 - rate) * scale)
