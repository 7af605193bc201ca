"""Moments of results, as the pages' columns hold them."""

from __future__ import annotations

import pytest

from agenteval_otel.ui.columns import _moments


@pytest.mark.parametrize(
    ("seconds", "held"),
    [(None, 0), (5, 5), (-3, 0), (2**40, 2**32 - 1), (10**400, 2**32 - 1), (-(10**400), 0)],
    ids=["unknown", "plain", "before 1970", "far ahead", "beyond a float", "far before"],
)
def test_any_number_is_held(seconds: int | None, held: int) -> None:
    """A file of results may hold any number; a page shows it at the nearest end of the calendar."""
    assert list(_moments([seconds, 7])) == [held, 7]
