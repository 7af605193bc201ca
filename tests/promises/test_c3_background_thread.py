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
    from agenteval_otel import accounting, annotate, configure, flush, monitor
    from agenteval_otel.redaction import Redactor
    from agenteval_otel.config import current_pipeline
    from agenteval_otel.evaluators import Func
    from agenteval_otel.ground_truth import GroundTruthStore
    from agenteval_otel.sampling import Sampler, SamplingDecision

    what, stalls = sys.argv[1], int(sys.argv[2])
    never = threading.Event()

    class Lines(logging.Handler):
        def emit(self, record):
            print("line", record.getMessage(), flush=True)
    logging.getLogger("agenteval_otel").addHandler(Lines())

    def hold(kind, text):
        if kind == what and "hang" in str(text):
            never.wait()

    async def holds_the_loop(evaluation_input):
        hold("evaluator", evaluation_input.response_text)
        return True

    class Reading(Sampler, type="reading"):
        def decide(self, context):
            if context.evaluation_input is None:
                return SamplingDecision(True, 1.0, "reading", settled=False)
            hold("sampler", context.evaluation_input.response_text)
            return SamplingDecision(True, 1.0, "reading")

    class Holding(Redactor, type="holding"):
        def redact(self, text):
            hold("redactor", text)
            return text

    class Slow(GroundTruthStore, type="slow"):
        def find(self, evaluation_input):
            hold("ground truth", evaluation_input.response_text)

    class Kept:
        type = "kept"
        saved = 0

        async def save_result(self, aggregated):
            hold("storage", "hang" if aggregated.agent == "troubled" else "")
            Kept.saved += 1

    def capture(arguments, answer):
        hold("capture", answer)
        return {"response": answer}

    configure(
        evaluators=["ResponseHealth"], sample_rate=1.0, redactors=[Holding()], ground_truth=Slow(), storage=[Kept()]
    )

    @monitor(
        capture=capture, agent="troubled", evaluators=[Func.of(holds_the_loop, timeout_s=0.5)], sampler=Reading()
    )
    def troubled(text):
        annotate(conversation_id=text)
        return text

    @monitor(agent="healthy")
    def healthy(text):
        return text

    healthy("warm")
    assert flush(30)
    until = time.monotonic() + 100
    pipeline = current_pipeline()
    for turn in range(stalls):
        troubled(f"hang {turn}")
        for call in range(20):  # wait behind it
            healthy("fine")
        while not pipeline.dispatcher.flush(0.5) and time.monotonic() < until:
            pass
    print("in_time", time.monotonic() < until)
    by_agent = pipeline.accounting.by_agent()
    print("healthy", by_agent["healthy"]["evaluated"])
    print("troubled", json.dumps({name: count for name, count in by_agent["troubled"].items() if count}))
    print("failures", json.dumps(pipeline.accounting.failures))
    print("results", json.dumps(pipeline.accounting.results))
    print("outcomes", json.dumps({name: count for name, count in accounting().items() if count}))
    print("saved", Kept.saved)
    sys.stdout.flush()
    os._exit(0)
"""
# What becomes of the eight calls that hang, how often the thread is replaced, and what the log names.
CASES: dict[str, tuple[dict[str, int], int, str]] = {
    # Moved to a thread after the first time, and quarantined after the third, as any evaluator that hangs.
    "evaluator": ({"evaluated": STALLS}, 1, "holds_the_loop"),
    "capture": ({"pipeline_failed": 3, "capture_failed": STALLS - 3}, 3, "capture:capture"),
    "sampler": ({"pipeline_failed": STALLS}, 3, "sampler:reading"),
    # Quarantined, it fails: text of a redactor that fails does not leave.
    "redactor": ({"pipeline_failed": 3, "evaluated": STALLS - 3}, 3, "redaction:holding"),
    # The look-up is tried once more, then evaluation goes on without; a save that hangs counts as failed.
    "ground truth": ({"evaluated": STALLS}, 3, "ground_truth:slow"),
    "storage": ({"evaluated": STALLS}, 3, "storage:kept"),
}


@pytest.mark.parametrize("what", CASES)
def test_the_background_thread_never_dies_for_good(what: str, promise: Recorder) -> None:
    """Eight stalls in a row: every call that waited behind is evaluated, the part is named and quarantined."""
    expected, times, name = CASES[what]
    finished = run_program(PROGRAM, what, str(STALLS), timeout_s=110.0)
    assert finished.code == 0, finished.stderr
    assert finished.lines("in_time") == ["True"], finished.stdout
    assert finished.lines("healthy") == [str(1 + 20 * STALLS)]
    assert json.loads(finished.lines("troubled")[0]) == expected
    outcomes: dict[str, int] = json.loads(finished.lines("outcomes")[0])
    assert sum(outcomes.values()) == 1 + 21 * STALLS
    results: dict[str, int] = json.loads(finished.lines("results")[0])
    assert sum(results.values()) == outcomes["evaluated"], "each evaluated answer has its result, once"
    assert results["failed"] == (STALLS if what == "evaluator" else 0)
    failures: dict[str, Any] = json.loads(finished.lines("failures")[0])
    assert failures["background_thread"] == times
    lines = [line for line in finished.lines("line") if "background_thread_replaced" in line]
    assert lines, "it is in the log"
    assert all(name in line for line in lines)
    assert any("_quarantined" in line and name in line for line in finished.lines("line"))
    if what == "storage":
        assert failures["storage:kept"] >= STALLS
    promise("C3", figure=f"background thread held by {what} again and again: replaced {times} times, others lost none")
