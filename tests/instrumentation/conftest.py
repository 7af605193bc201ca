"""A pipeline that keeps what it evaluated; no thread outlives a test of this room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.instrumentation.support import Seen
from tests.testing.threads import no_thread_left

__all__ = ["no_thread_left"]


@pytest.fixture
def seen() -> Iterator[Seen]:
    made = Seen()
    yield made
    made.pipeline.shutdown(5)
    assert made.pipeline.accounting.failures == {}
