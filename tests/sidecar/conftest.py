"""What the sidecar's tests have: a log in which no cause waits for its minute."""

from __future__ import annotations

import pytest

from agenteval_otel.runtime.log import log


@pytest.fixture(autouse=True)
def _fresh_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_last", {})
