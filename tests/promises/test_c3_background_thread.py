"""C3: whatever holds the background thread, however often, other answers are evaluated, and the log names it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.promises.figures import Recorder
from tests.promises.programs import run_program

STALLS = 8
PROGRAM = """
    import json, logging, os, sys, threading, time
    from agenteval_otel import accounting, configure, flush, monitor
    from agenteval_otel.config import current_pipeline

    what, stalls = sys.argv[1], int(sys.argv[2])
    never = threading.Event()

    class Lines(logging.Handler):
        def emit(self, record):
            print("line", record.getMessage(), flush=True)
    logging.getLogger("agenteval_otel").addHandler(Lines())
    # The limit is thirty seconds by default.
    configure(dispatcher={"type": "pool", "stall_s": 0.2}, evaluators=["ResponseHealth"], sample_rate=1.0)

    async def holds_the_loop(evaluation_input):
        if "hang" in evaluation_input.response_text:
            never.wait()
        return True

    def capture(arguments, answer):
        if "hang" in answer:
            never.wait()
        return answer

    @monitor(evaluators=[holds_the_loop], agent="with a blocking evaluator")
    def by_evaluator(text):
        return text

    @monitor(capture=lambda *found: capture(None, str(found)), agent="with a blocking capture")
    def by_capture(text):
        return text

    @monitor(agent="healthy")
    def healthy(text):
        return text

    troubled = by_evaluator if what == "evaluator" else by_capture
    healthy("warm")
    assert flush(30)
    lost, until = 0, time.monotonic() + 100
    for turn in range(stalls):
        troubled("hang")
        for call in range(20):  # wait behind it
            healthy("fine")
        while not flush(0.5) and time.monotonic() < until:
            pass
    print("in_time", time.monotonic() < until)
    pipeline = current_pipeline()
    by_agent = pipeline.accounting.by_agent()
    print("healthy", by_agent["healthy"]["evaluated"])
    print("failures", json.dumps(pipeline.accounting.failures))
    print("outcomes", json.dumps({name: count for name, count in accounting().items() if count}))
    print("threads", sum(thread.name == "agenteval-pool" for thread in threading.enumerate()))
    sys.stdout.flush()
    os._exit(0)
"""


@pytest.mark.parametrize("what", ["evaluator", "capture"])
def test_the_background_thread_never_dies_for_good(what: str, promise: Recorder) -> None:
    """Eight stalls in a row: every call that waited behind one is evaluated, each stall is counted and logged."""
    finished = run_program(PROGRAM, what, str(STALLS), timeout_s=150.0)
    assert finished.code == 0, finished.stderr
    assert finished.lines("in_time") == ["True"]
    assert finished.lines("healthy") == [str(1 + 20 * STALLS)]
    outcomes: dict[str, int] = json.loads(finished.lines("outcomes")[0])
    assert sum(outcomes.values()) == 1 + 21 * STALLS
    failures: dict[str, Any] = json.loads(finished.lines("failures")[0])
    lines = [line for line in finished.lines("line") if "background_thread_replaced" in line]
    if what == "evaluator":
        # Three times, as any evaluator that hangs; then it is quarantined, and its calls have a failed result.
        assert failures["background_thread"] == 3
        assert "holds_the_loop" in lines[0]
        assert any("evaluator_quarantined" in line and "holds_the_loop" in line for line in finished.lines("line"))
        assert outcomes["pipeline_failed"] == 3
        assert outcomes["evaluated"] == 1 + 21 * STALLS - 3
    else:
        assert failures["background_thread"] == STALLS
        assert outcomes["pipeline_failed"] == STALLS
    assert lines
    promise("C3", figure=f"background thread held {failures['background_thread']} times ({what}): others lost nothing")
