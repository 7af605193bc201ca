"""Receipts: a request is done once all that it asked for is evaluated and delivered."""

from __future__ import annotations

from agenteval_otel.semconv import DROPPED_SHUTDOWN, EVALUATED
from agenteval_otel.sidecar.receipts import Receipt, Receipts

TRACE = 7


def issued(receipts: Receipts, newest: int, tasks: int) -> Receipt:
    """A receipt whose tasks are all submitted."""
    receipt = receipts.issue(TRACE, newest, newest)
    for _ in range(tasks):
        receipt.opened()
    receipts.submitted([receipt])
    return receipt


def test_what_is_dropped_at_the_end_is_left_to_the_next_process() -> None:
    """Its request is needed still, and not done."""
    receipts = Receipts()
    receipt = issued(receipts, newest=1, tasks=1)
    receipt.settle(DROPPED_SHUTDOWN)
    assert not receipts.look()
    assert receipts.done(()) == {}
    assert receipts.needed_from({}) == 1


def test_a_trace_is_done_up_to_its_first_request_that_is_not() -> None:
    """Whichever of its requests is evaluated first."""
    receipts = Receipts()
    first, second = (issued(receipts, newest, tasks=1) for newest in (1, 2))
    second.settle(EVALUATED)
    second.delivered()
    receipts.look()
    assert receipts.done(()) == {}
    first.settle(EVALUATED)
    first.delivered()
    receipts.look()
    assert receipts.done({TRACE}) == {}, "held back"
    assert receipts.done(()) == {TRACE: 2}
