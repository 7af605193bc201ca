"""Recorded telemetry behind a handler; no thread outlives a test of this room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agenteval_otel.testing import RecordedTelemetry
from tests.telemetry.support import Watch
from tests.testing.threads import no_thread_left

__all__ = ["no_thread_left"]


@pytest.fixture
def watch(telemetry: RecordedTelemetry) -> Iterator[Watch]:
    made = Watch(telemetry)
    yield made
    made.shutdown()
