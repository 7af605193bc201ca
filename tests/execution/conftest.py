"""No thread outlives a test of this room, and no line of the log is left out because another test
had it written.
"""

import pytest

from agenteval_otel.runtime.log import log
from tests.testing.threads import no_thread_left

__all__ = ["fresh_log", "no_thread_left"]


@pytest.fixture(autouse=True)
def fresh_log() -> None:
    log.forget()
