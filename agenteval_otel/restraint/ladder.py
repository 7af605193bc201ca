"""Ladder: the steps from full sampling down to none, and back.

Down goes by halves, soon after one another; up goes by doubling, a second apart, and slowly where the last trouble
was: so the share settles just below what the pool manages instead of swinging around it. Arithmetic alone, on times
that it is given.
"""

from __future__ import annotations

from typing import Final

__all__ = ["CODE_ONLY", "FULL", "LEVELS", "OFF", "REDUCED", "Ladder"]

FULL: Final = 0
REDUCED: Final = 1
CODE_ONLY: Final = 2
OFF: Final = 3
LEVELS: Final = ("full", "reduced", "code only", "off")

DOWN_EVERY_S: Final = 0.5
UP_EVERY_S: Final = 1.0
_MOST_PATIENCE_S: Final = 8.0
_CREEP: Final = 1.1
_BELOW: Final = 0.9
_BEYOND: Final = 1.25


class Ladder:
    """Where sampling stands.

    Args:
        least_share: The smallest share before the level becomes `CODE_ONLY`.

    Attributes:
        level: `FULL`, `REDUCED`, `CODE_ONLY` or `OFF`.
        share: Share in (0, 1] of the sampled responses that goes on, unless the level is `OFF`.
        moved_at: When the last step was made; what was measured before says nothing about where it stands now.
    """

    def __init__(self, least_share: float) -> None:
        self._least = least_share
        self.level, self.share = FULL, 1.0
        self.moved_at = float("-inf")
        self._well_since: float | None = None
        self._trouble_at: float | None = None  # the share at which trouble was met last
        self._patience_s = UP_EVERY_S

    def __repr__(self) -> str:
        return f"<Ladder {LEVELS[self.level]} share={self.share:.3g}>"

    def down(self, now: float, deepest: int) -> bool:
        """One step down, unless the last one is too fresh or the level is `deepest` already; whether it was made."""
        self._well_since = None
        if now - self.moved_at < DOWN_EVERY_S:
            return False
        if self.level <= REDUCED and self.share > self._least:
            self._trouble_at = self.share
            self.level, self.share = REDUCED, max(self._least, self.share / 2)
        elif self.level < deepest:
            # Met again soon after it was left: the next try waits longer.
            fresh = now - self.moved_at < 5 * self._patience_s
            self._patience_s = min(_MOST_PATIENCE_S, self._patience_s * 2) if fresh else UP_EVERY_S
            self.level = max(CODE_ONLY, self.level + 1)
        else:
            return False
        self.moved_at = now
        return True

    def hold(self) -> None:
        """Neither trouble nor well: the time of being well begins anew."""
        self._well_since = None

    def up(self, now: float) -> bool:
        """All is well: a step up, once it has been so for long enough; whether it was made."""
        if self.level == FULL:
            return False
        if self._well_since is None:
            self._well_since = now
        wait_s = self._patience_s if self.level >= CODE_ONLY else UP_EVERY_S
        if now - max(self._well_since, self.moved_at) < wait_s:
            return False
        if self.level >= CODE_ONLY:
            self.level -= 1
        else:
            self.share = self._raised()
        if self.level == REDUCED and self.share >= 1.0:
            self.begin_again()
        self.moved_at = now
        return True

    def begin_again(self) -> None:
        """Back to full, as if there never had been trouble."""
        self.level, self.share = FULL, 1.0
        self._well_since = self._trouble_at = None
        self._patience_s = UP_EVERY_S

    def _raised(self) -> float:
        raised = self.share * 2
        met = self._trouble_at
        if met is not None and raised > _BELOW * met:
            raised = max(min(raised, _BELOW * met), self.share * _CREEP)
            if raised > _BEYOND * met:
                self._trouble_at = None
        return min(1.0, raised)
