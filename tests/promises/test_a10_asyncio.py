"""A10: whatever a program does with its event loops, it sees nothing of ours, and every answer is
evaluated.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.promises.figures import FULL, Recorder
from tests.promises.programs import Finished, run_program

CALLS = 200 if FULL else 20
FLAGS = ("-X", "dev", "-W", "always")
PROGRAM = """
    import asyncio, contextvars, gc, sys, threading, warnings
    scenario, shape, calls, watched = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "watched"
    from agenteval_otel import monitor
    from agenteval_otel.evaluators import Func, ResponseHealth
    from agenteval_otel.engine.pipeline import InlineDispatcher, PoolDispatcher
    from agenteval_otel.sampling.trace import SamplingSettings
    from agenteval_otel.testing import RecordedTelemetry
    from tests.promises.bench import pipeline_of

    over = threading.Event()  # evaluations are pending until the program's own part is over

    async def judge(value):
        while not over.is_set():
            await asyncio.sleep(0.01)
        return True

    def slow(value):
        over.wait(20)
        return True

    telemetry = RecordedTelemetry()
    pipeline = pipeline_of(
        ResponseHealth(), Func.of(judge, criterion_name="judge"), Func.of(slow, criterion_name="slow"),
        storage=(telemetry.storage(detail="result"),), agent_span="always",
        dispatcher=PoolDispatcher(max_items=100_000), sheds=False,
        # A coroutine that is closed in another context leaves its span current in its own: later calls share its trace.
        sampling=SamplingSettings(unit="call"),
    )
    watch = monitor(pipeline=pipeline, agent="agent") if watched else (lambda handler: handler)
    tracer = telemetry.tracer()
    seen = contextvars.ContextVar("seen")

    async def turn():
        await asyncio.sleep(0)

    @watch
    async def answers(question):
        await turn()
        return "an answer"

    @watch
    def answers_at_once(question):
        return "an answer"

    @watch
    async def hangs(question):
        await asyncio.Event().wait()

    @watch
    async def streams(question):
        token = seen.set(question)
        with tracer.start_as_current_span("inside") if shape == "spans" else open("/dev/null"):
            for chunk in ("an ", "answer", "."):
                yield chunk
                await turn()

    @watch
    def streams_at_once(question):
        yield from ("an ", "answer", ".")

    def open_stream():
        return streams_at_once("q") if shape == "sync" else streams("q")

    async def step(stream):
        return next(stream, None) if shape == "sync" else await anext(stream, None)

    async def end(stream):
        stream.close() if shape == "sync" else await stream.aclose()

    async def ask():
        if shape == "sync":
            return answers_at_once("q")
        return await answers("q")

    async def many():
        got = await asyncio.gather(*(ask() for _ in range(calls)))
        assert got == ["an answer"] * calls

    def run_ends():
        asyncio.run(many())
        return calls

    def loop_closed():
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        loop.run_until_complete(many())
        assert asyncio.get_event_loop_policy().get_event_loop() is loop
        loop.close()
        asyncio.set_event_loop(None)
        return calls

    def two_loops():
        threads = [threading.Thread(target=run_ends) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return 2 * calls

    def nested_run():
        async def main():
            await asyncio.gather(*(asyncio.to_thread(asyncio.run, many()) for _ in range(2)), many())
        asyncio.run(main())
        return 3 * calls

    def cancelled():
        async def main():
            tasks = [asyncio.ensure_future(asyncio.to_thread(answers_at_once, "q") if shape == "sync" else hangs("q"))
                     for _ in range(calls)]
            await turn()
            await turn()
            for task in tasks:
                task.cancel()
            got = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(item == "an answer" or isinstance(item, asyncio.CancelledError) for item in got)
        asyncio.run(main())
        return None if shape == "sync" else calls  # a thread that had not begun makes no call

    def abandoned():
        async def main():
            for number in range(calls):
                stream = open_stream()
                await step(stream)
                del stream
                if number % 5 == 0:
                    gc.collect()
                    await turn()
            await turn()
        asyncio.run(main())
        gc.collect()
        return calls

    def passed_on():
        async def main():
            for number in range(calls):
                stream = open_stream()
                while await asyncio.create_task(step(stream)) is not None:  # each step in a context of its own
                    if number % 3 == 0:
                        break
                await asyncio.create_task(end(stream))
        asyncio.run(main())
        return calls

    def left_open():
        loop = asyncio.new_event_loop()
        streams_left = []
        async def main():
            for _ in range(calls):
                streams_left.append(open_stream())
                await step(streams_left[-1])
        loop.run_until_complete(main())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        streams_left.clear()
        gc.collect()
        return calls

    def closed_by_hand():
        for number in range(calls):
            running = ask()
            running.send(None)
            contextvars.copy_context().run(running.close) if number % 2 else running.close()
            del running
        gc.collect()
        return calls

    expected = globals()[scenario]()
    over.set()
    if watched:
        assert pipeline.flush(30), "not flushed"
        outcomes = pipeline.accounting.outcomes()
        results = pipeline.accounting.results
        assert not pipeline.accounting.failures, pipeline.accounting.failures
        print("evaluated", outcomes["evaluated"], flush=True)
        print("calls", sum(outcomes.values()) if expected is None else expected, flush=True)
        print("results", sum(results.values()), flush=True)
        print("due", 3 * outcomes["evaluated"], flush=True)
        print("events", len(telemetry.events()) + results["skipped"], flush=True)
        assert pipeline.shutdown(10)
        telemetry.shutdown()
"""
SCENARIOS = {
    "run_ends": ("async", "sync"), "loop_closed": ("async", "sync"), "two_loops": ("async", "sync"),
    "nested_run": ("async", "sync"), "cancelled": ("async", "sync"), "abandoned": ("async", "sync", "spans"),
    "passed_on": ("async", "sync", "spans"), "left_open": ("async", "sync"), "closed_by_hand": ("async",),
}  # fmt: skip
WORDS = (
    "Task was destroyed",
    "never awaited",
    "Failed to detach",
    "never retrieved",
    "Traceback",
    "Warning",
)

SLOW_HOST = re.compile(r"Executing <(?!.*agenteval_otel).* took [\d.]+ seconds")
"""What the debug mode says of the program's own work, on a machine that is busy; of ours it would
name a file.
"""


CASES = [(scenario, shape) for scenario, shapes in SCENARIOS.items() for shape in shapes]


def complaints(program: Finished) -> dict[str, int]:
    return {word: program.stderr.count(word) for word in WORDS}


@pytest.mark.parametrize(("scenario", "shape"), CASES)
@pytest.mark.sized
def test_the_program_sees_nothing_of_ours(
    python: str, scenario: str, shape: str, promise: Recorder
) -> None:
    """In asyncio's debug mode nothing is written to stderr that the bare program does not write,
    and all is scored.
    """

    def run(how: str) -> Finished:
        options: dict[str, Any] = {"flags": FLAGS, "python": python, "PYTHONASYNCIODEBUG": "1"}
        finished = run_program(PROGRAM, scenario, shape, str(CALLS), how, **options)
        assert finished.code == 0, finished.stderr
        return finished

    watched = run("watched")
    if FULL or shape == "spans":  # there the program itself has something on stderr
        assert complaints(watched) == complaints(run("bare"))
    else:
        assert [line for line in watched.stderr.splitlines() if not SLOW_HOST.match(line)] == []
    (evaluated,), (calls,) = watched.lines("evaluated"), watched.lines("calls")
    assert evaluated == calls, watched.stdout
    assert watched.lines("results") == watched.lines("events") == watched.lines("due"), (
        watched.stdout
    )
    promise("A10", figure=f"{evaluated} of {calls} scored, 0 lines of ours on stderr")


def test_an_inline_evaluation_leaves_the_hosts_loop_set() -> None:
    """Evaluating inline, outside of a running loop, leaves the thread's current event loop as the
    host has set it.
    """
    source = """
        import asyncio
        from agenteval_otel import configure, monitor
        from agenteval_otel.engine.pipeline import InlineDispatcher
        from agenteval_otel.testing import RecordedTelemetry
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        configure(storage=[RecordedTelemetry().storage()], dispatcher=InlineDispatcher(), sample_rate=1.0)
        assert monitor(lambda: "an answer")() == "an answer"
        print("same", asyncio.get_event_loop() is loop)
        loop.close()
    """
    finished = run_program(source, flags=FLAGS)
    assert (finished.lines("same"), finished.stderr) == (["True"], "")
