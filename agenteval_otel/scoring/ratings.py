"""Ratings: words for scores from 1 to 5, as Microsoft's evaluators call them."""

from __future__ import annotations

import math

from agenteval_otel.models import ScoreValue

__all__ = ["INCONCLUSIVE", "RATINGS", "rating_of"]

RATINGS = ("Unacceptable", "Poor", "Average", "Good", "Exceptional")
"""From the worst to the best."""
INCONCLUSIVE = "Inconclusive"


def rating_of(score: ScoreValue | None) -> str:
    """The word for a score on the scale from 1 to 5: each covers up to its whole number, above 0 to 1 is the first.

    What is no number above 0 and up to 5 is ``Inconclusive``. The word says nothing of passing, which is the
    criterion's threshold's to say: 4 in the original, so that ``Average`` fails.
    """
    if score is None or isinstance(score, bool | str) or not 0 < score <= len(RATINGS):
        return INCONCLUSIVE
    return RATINGS[math.ceil(score) - 1]
