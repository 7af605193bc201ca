"""ManualClock: time that a test moves."""

from __future__ import annotations

__all__ = ["ManualClock"]


class ManualClock:
    """Monotonic seconds that stand still until `advance` is called; pass it wherever a ``clock`` is asked for."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def __call__(self) -> float:
        return self._now_s

    def __repr__(self) -> str:
        return f"<ManualClock {self._now_s:g} s>"

    def advance(self, seconds: float) -> None:
        """Move on; never back.

        Raises:
            ValueError: For a negative step: monotonic time has none.
        """
        if seconds < 0:
            raise ValueError("monotonic time does not go back")
        self._now_s += seconds
