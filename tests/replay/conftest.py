"""Commands in this process, in an empty folder, as those of tests/cli."""

from __future__ import annotations

import pytest

from agenteval_otel.runtime.reentrancy import PROCESS
from tests.cli.conftest import CommandLine, _bare_environment, cli, no_thread_left

__all__ = ["CommandLine", "_bare_environment", "cli", "no_thread_left"]


@pytest.fixture(autouse=True)
def _own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command sets these for its own process, which here is that of the tests."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "agenteval-replay")
    monkeypatch.setenv("GRPC_VERBOSITY", "NONE")
    monkeypatch.setattr(PROCESS, "rests", True)
