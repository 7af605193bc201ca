"""A8: a call may come at any moment, from anywhere: nothing deadlocks, and every call has its outcome.

Each program makes monitored calls from where one meets another half done: from a signal handler, from destructors in
the middle of a collection, from a log handler, from an evaluator. They run as processes of their own, which a watchdog
ends with a dump of what hangs.
"""

from __future__ import annotations

import pytest

from tests.promises.figures import Recorder, sized
from tests.promises.programs import run_program

SECONDS = sized(2, 10)
START_S, FLUSH_S = 60, 60

SETTING = """
    import contextvars, faulthandler, gc, itertools, logging, signal, sys, threading, time
    from agenteval_otel import monitor
    from agenteval_otel.evaluators import Func, ResponseHealth
    from agenteval_otel.pipeline import Pipeline, PoolDispatcher
    from agenteval_otel.pipeline.load_shedding import LoadSheddingSettings
    from agenteval_otel.sampling import RatioSampler

    SECONDS = float(sys.argv[1])
    faulthandler.dump_traceback_later(float(sys.argv[2]), exit=True)
    made, elsewhere, lost = itertools.count(), itertools.count(), []

    def answer(question):
        ours = threading.current_thread().name.startswith("agenteval")
        next(elsewhere if ours else made)
        return "the answer to " + question

    def pipeline_of(*evaluators):
        return Pipeline(
            sampler=RatioSampler(ratio=0.9), evaluators=evaluators or (ResponseHealth(),), storage=(),
            dispatcher=PoolDispatcher(max_items=256), load_shedding=LoadSheddingSettings(enabled=False),
        )

    def calls_for(seconds, call):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            call()

    def report(pipeline, **more):
        flushed = pipeline.flush(60.0)
        outcomes = pipeline.accounting.outcomes()
        print("calls", next(made))
        print("outcomes", sum(outcomes.values()))
        print("evaluated", outcomes["evaluated"])
        print("left", pipeline.dispatcher.state()["size"])
        print("flushed", flushed)
        print("failed", outcomes["pipeline_failed"] + outcomes["capture_failed"])
        for name, count in more.items():
            print(name, count)
        sys.stdout.flush()
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
    threads = [threading.Thread(target=calls_for, args=(SECONDS, call)) for _ in range(2)]
    for thread in threads:
        thread.start()
    calls_for(SECONDS, call)
    for thread in threads:
        thread.join()
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
    said = itertools.count()
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
                next(said)
                handler("a log record")
            finally:
                guard.reset(token)

    logging.getLogger().handlers[:] = [Monitored()]
    logging.getLogger().setLevel(logging.DEBUG)
    threads = [threading.Thread(target=calls_for, args=(SECONDS, lambda: handler("a thread"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report(pipeline, met=next(said))
"""

EVALUATORS = """
    nested, waited = itertools.count(), []
    inner = monitor(pipeline=pipeline_of(), agent="inner")(lambda question: "from inside")

    def asks(given):
        next(nested)
        handler("an evaluator")
        inner("an evaluator")
        if not waited:
            waited.append(pipeline.flush(0.2))
        return True

    async def asks_at_once(given):
        return asks(given)

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
        (SIGNALS, "a signal handler, 0.5 ms timer"), (DESTRUCTORS, "__del__, gc.set_threshold(1)"),
        (LOGS, "a log handler"), (EVALUATORS, "an evaluator"),
    ],
    ids=["signals", "destructors", "logs", "evaluators"],
)  # fmt: skip
def test_a_call_in_the_middle_of_a_call(source: str, where: str, promise: Recorder) -> None:
    """Calls that interrupt others neither hang nor break, and calls and outcomes add up exactly."""
    watchdog_s = START_S + SECONDS + FLUSH_S
    finished = run_program(SETTING + source, str(SECONDS), str(watchdog_s), timeout_s=watchdog_s + 30)
    assert finished.code == 0, finished.stderr[-4000:]
    messages = {word: finished.lines(word)[-1] for word in ("calls", "outcomes", "evaluated", "left", "flushed", "met")}
    promise(
        "A8", figure=f"from {where}: {messages['met']} among {messages['calls']} calls, {messages['outcomes']} outcomes"
    )
    assert int(messages["met"]) >= 20, "it was never met"
    assert messages["outcomes"] == messages["calls"]
    assert int(messages["evaluated"]) > 0
    assert messages["left"] == "0"
    assert messages["flushed"] == str(source is not LOGS), "there the storage fails"
    assert finished.lines("failed") == ["0"]
