"""What an explanation says."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["SLOW", "Explanation"]


class Explanation(NamedTuple):
    """What a word of the accounting means.

    Attributes:
        means: One sentence that goes on from "The call ..." for outcomes, a whole sentence for the rest.
        causes: Likely ones, the likeliest first.
        remedies: What to do, as orders.
        harmless: It is what was asked for; in any number it is no reason to look further.
    """

    means: str
    causes: tuple[str, ...]
    remedies: tuple[str, ...]
    harmless: bool = False


SLOW: Final = "evaluators are slower than the traffic: a judge that answers late, or one that runs into its time limit"
"""A cause that several outcomes share."""
