"""When the sidecar says that nothing is evaluated, and when it does not."""

from __future__ import annotations

import pytest

from agenteval_otel.semconv import ALREADY_MONITORED, EVALUATED, NOT_SAMPLED
from agenteval_otel.sidecar.silence import Silence
from agenteval_otel.telemetry import Accounting
from agenteval_otel.testing import ManualClock


class Watched:
    """A sidecar's counts, looked at ten times a second."""

    def __init__(self) -> None:
        self.accounting, self.clock = Accounting(), ManualClock()
        self.silence = Silence(self.clock)

    def count(self, outcome: str, times: int = 1) -> None:
        self.accounting.outcome_counts("support")[outcome] += times

    def wait(self, seconds: float) -> str | None:
        """The reason that is known after this time."""
        for _ in range(round(seconds * 10)):
            self.clock.advance(0.1)
            self.silence.look(self.accounting)
        return None if self.silence.reason is None else self.silence.reason.outcome

    @property
    def told(self) -> int:
        return self.accounting.failures.get("nothing_evaluated", 0)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_nothing_that_arrives_is_nothing_to_tell(watched: Watched) -> None:
    """A sidecar without traffic is silent."""
    assert watched.wait(600.0) is None
    assert watched.told == 0


def test_it_is_told_once_until_an_answer_is_evaluated(watched: Watched) -> None:
    """However long it goes on; an answer takes it back, and after that a minute has to pass."""
    watched.count(ALREADY_MONITORED)
    assert watched.wait(1.5) is None
    assert watched.wait(2.0) == "already_monitored"
    for _ in range(100):
        watched.count(ALREADY_MONITORED)
        watched.wait(5.0)
    assert watched.told == 1
    watched.count(EVALUATED)
    assert watched.wait(10.0) is None
    watched.count(ALREADY_MONITORED)
    assert watched.wait(50.0) is None
    assert watched.wait(20.0) == "already_monitored"
    assert watched.told == 2


@pytest.mark.parametrize("outcome", [EVALUATED, NOT_SAMPLED])
def test_beside_answers_other_spans_are_nothing_to_tell(watched: Watched, outcome: str) -> None:
    """Web frameworks' spans come all day long; an answer that the sampler leaves out is one too."""
    watched.count(outcome)
    for _ in range(100):
        watched.accounting.count_spans("not_understood", 100, "web")
        assert watched.wait(10.0) is None


def test_an_answer_now_and_then_is_enough(watched: Watched) -> None:
    """Most answers are evaluated in their application, and one in half a minute here."""
    for _ in range(20):
        watched.count(ALREADY_MONITORED, 50)
        watched.wait(15.0)
        watched.count(EVALUATED)
        watched.wait(15.0)
    assert watched.told == 1  # before the first one
