"""Each test begins without variables of ours, and with the switch on."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from agenteval_otel.config import enable
from tests.testing.threads import no_thread_left

__all__ = ["no_thread_left"]


@pytest.fixture(autouse=True)
def _as_at_start(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("AGENTEVAL_")]:
        monkeypatch.delenv(name)
    yield
    enable()
