"""The contract of dispatchers, and the inline one."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.pipeline import Dispatcher, InlineDispatcher, PoolDispatcher, process_each
from agenteval_otel.semconv import OUTCOMES
from agenteval_otel.testing import check_component
from tests.backends.process import bare_environment
from tests.pipeline.support import Record

PLACE: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="nowhere")


@pytest.mark.parametrize("name", ["inline", "pool"])
def test_every_dispatcher_keeps_the_contract(name: str) -> None:
    """Each call is settled once, a flush is truthful, and nothing is taken after shutdown."""
    record, dispatcher = Record(), Dispatcher.registry[name]()
    check_component(dispatcher, Dispatcher)
    dispatcher.start(process_each(record.process), record.settle)
    calls = ["broken", *map(str, range(200))]
    for call in calls:
        dispatcher.submit(call, 1)
    assert dispatcher.flush(10.0)
    assert sorted(call for call, _ in record.settled) == sorted(calls)
    assert {outcome for _, outcome in record.settled} <= set(OUTCOMES)
    assert dispatcher.shutdown(10.0)
    assert not dispatcher.submit("late", 1)
    assert record.outcome_of("late") == "dropped_shutdown"
    assert dispatcher.state()["size"] == 0


def test_inline_is_done_when_submit_returns() -> None:
    record = Record()
    dispatcher = InlineDispatcher()
    dispatcher.start(process_each(record.process), record.settle)
    assert dispatcher.submit("a", 1)
    assert record.settled == [("a", "evaluated")]
    assert record.threads == {threading.current_thread()}
    assert dispatcher.submit("broken", 1)
    assert record.outcome_of("broken") == "pipeline_failed"

    async def caller() -> None:
        assert dispatcher.submit("in a running loop", 1)

    asyncio.run(caller())
    assert record.outcome_of("in a running loop") == "evaluated"
    assert dispatcher.state() == {"size": 0, "waiting": 0, "bytes": 0, "max_bytes": 0}


@pytest.mark.parametrize("made", [InlineDispatcher(), PoolDispatcher(linger_s=0)], ids=lambda made: made.type)
def test_the_callers_context_stays_the_callers(made: Dispatcher) -> None:
    seen: list[str] = []

    async def process(call: Any) -> str:
        seen.append(PLACE.get())
        return "evaluated"

    made.start(process_each(process), lambda call, outcome: None)
    token = PLACE.set("request 7")
    try:
        made.submit("a", 1)
        assert made.flush(10)
    finally:
        PLACE.reset(token)
    assert seen == ["nowhere"]
    assert made.shutdown(10)


@pytest.mark.parametrize("work", ["asyncio.to_thread(str.upper, 'kept')", "name_of('localhost')"])
def test_the_last_answer_is_evaluated_while_the_interpreter_ends(work: str, tmp_path: Path) -> None:
    """A script gives its only answer and ends: an evaluator that needs a thread, as every model client does for its
    first name look-up, still comes to its score."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        import asyncio
        from agenteval_otel import configure, monitor

        async def name_of(host):
            found = await asyncio.get_running_loop().getaddrinfo(host, 80)
            return "KEPT" if found else ""

        async def judged(evaluation_input) -> bool:
            return await {work} == "KEPT"

        class Keep:
            async def save_result(self, aggregated):
                (result,) = aggregated.results
                print(await asyncio.to_thread(str, result.error_type or result.score), flush=True)

        configure(evaluators=[judged], storage=[Keep()], sample_rate=1.0)

        @monitor
        def answer(question):
            return "an answer"

        answer("a question")
    """)
    )
    command = [sys.executable, str(script)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=bare_environment(), check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True\n", "")
