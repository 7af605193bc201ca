"""A8: a call may come at any moment, from anywhere: nothing deadlocks, and every call has its
outcome.
"""

from __future__ import annotations

import pytest

from tests.promises.figures import Recorder, sized
from tests.promises.programs import run_program

SECONDS = sized(2, 10)
START_S, FLUSH_S = 60, 60

SETTING = """
    import contextvars, faulthandler, gc, itertools, json, logging, signal, sys, threading, time
    from agenteval_otel import monitor
    from agenteval_otel.evaluators import Func
    from agenteval_otel.engine.pipeline import PoolDispatcher
    from agenteval_otel.sampling import RatioSampler
    from tests.promises import bench
    from tests.promises.programs import together

    SECONDS = float(sys.argv[1])
    faulthandler.dump_traceback_later(float(sys.argv[2]), exit=True)
    made, elsewhere, lost = itertools.count(), itertools.count(), []

    def answer(question):
        ours = threading.current_thread().name.startswith("agenteval")
        next(elsewhere if ours else made)
        return "the answer to " + question

    def pipeline_of(*evaluators):
        dispatcher = PoolDispatcher(max_items=256)
        return bench.pipeline_of(*evaluators, sampler=RatioSampler(ratio=0.9), dispatcher=dispatcher, sheds=False)

    def calls_for(seconds, call):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            call()

    def report(pipeline, **more):
        flushed = pipeline.flush(60.0)
        outcomes = pipeline.accounting.outcomes()
        print("report", json.dumps({
            "calls": next(made), "outcomes": outcomes, "left": pipeline.dispatcher.state()["size"], "flushed": flushed,
            **more,
        }), flush=True)
        pipeline.shutdown(10.0)
"""

SIGNALS = """
    pipeline = pipeline_of()
    handler = monitor(pipeline=pipeline)(answer)
    rung = itertools.count()

    def on_alarm(number, frame):
        next(rung)
        handler("an alarm")

    handler("the first")
    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    calls_for(SECONDS, lambda: handler("the main thread"))
    signal.setitimer(signal.ITIMER_REAL, 0)
    report(pipeline, met=next(rung))
"""

DESTRUCTORS = """
    pipeline = pipeline_of()
    handler = monitor(pipeline=pipeline)(answer)
    gone = itertools.count()

    class Cycle:
        def __init__(self):
            self.itself = self

        def __del__(self):
            next(gone)
            handler("a destructor")

    def call():
        Cycle()
        handler("the main thread")

    gc.set_threshold(1, 1, 1)
    together([lambda: calls_for(SECONDS, call)] * 3)
    gc.set_threshold(0)
    report(pipeline, met=next(gone))
"""

LOGS = """
    class Failing:
        type = "failing"

        async def save_result(self, aggregated):
            raise OSError("not now")

        async def close(self):
            pass

    pipeline = pipeline_of()
    emitted = itertools.count()
    guard = contextvars.ContextVar("guard", default=False)

    @monitor(pipeline=pipeline, storage=[Failing()])
    def handler(question):
        logging.getLogger("host").warning("asked")
        return answer(question)

    class Monitored(logging.Handler):
        def emit(self, record):
            if guard.get():
                return
            token = guard.set(True)
            try:
                next(emitted)
                handler("a log record")
            finally:
                guard.reset(token)

    logging.getLogger().handlers[:] = [Monitored()]
    logging.getLogger().setLevel(logging.DEBUG)
    together([lambda: calls_for(SECONDS, lambda: handler("a thread"))] * 2)
    report(pipeline, met=next(emitted))
"""

EVALUATORS = """
    nested, waited = itertools.count(), []
    inner = monitor(pipeline=pipeline_of(), agent="inner")(lambda question: "from inside")

    def asks(value):
        next(nested)
        handler("an evaluator")
        inner("an evaluator")
        if not waited:
            waited.append(pipeline.flush(0.2))
        return True

    async def asks_at_once(value):
        return asks(value)

    pipeline = pipeline_of(Func.of(asks), Func.of(asks_at_once))

    def handle(question):
        if question != "an evaluator":
            next(made)
        return "an answer"

    handler = monitor(pipeline=pipeline)(handle)
    calls_for(SECONDS, lambda: (handler("the main thread"), time.sleep(0.0005)))
    report(pipeline, met=next(nested))
"""


@pytest.mark.sized
@pytest.mark.parametrize(
    ("source", "where"),
    [
        (SIGNALS, "a signal handler, 0.5 ms timer"),
        (DESTRUCTORS, "__del__, gc.set_threshold(1)"),
        (LOGS, "a log handler"),
        (EVALUATORS, "an evaluator"),
    ],
    ids=["signals", "destructors", "logs", "evaluators"],
)
def test_a_call_in_the_middle_of_a_call(source: str, where: str, promise: Recorder) -> None:
    """A call that comes in the middle of our own code does not deadlock, and every call is counted."""
    watchdog_s = START_S + SECONDS + FLUSH_S
    report = run_program(
        SETTING + source, str(SECONDS), str(watchdog_s), timeout_s=watchdog_s + 30
    ).report()
    met, calls, outcomes = report["met"], report["calls"], report["outcomes"]
    promise(
        "A8", figure=f"from {where}: {met} among {calls} calls, {sum(outcomes.values())} outcomes"
    )
    assert met >= 20, "it was never met"
    assert sum(outcomes.values()) == calls
    assert outcomes["evaluated"] > 0
    assert (outcomes["pipeline_failed"], outcomes["capture_failed"], report["left"]) == (0, 0, 0)
    assert report["flushed"] is (source is not LOGS), "there the storage fails"
