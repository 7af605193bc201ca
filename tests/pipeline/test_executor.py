"""The executor of the pool's loop: daemon threads that still work while the interpreter goes down."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agenteval_otel.pipeline.dispatcher import MAX_THREADS, DaemonExecutor
from tests.backends.process import bare_environment


def threads_of() -> int:
    return sum(thread.name == "agenteval-executor" for thread in threading.enumerate())


def test_it_runs_side_by_side_and_within_its_bound() -> None:
    """Eight things at once, not more; results and errors come back as from any executor."""
    executor = DaemonExecutor()
    assert isinstance(executor, ThreadPoolExecutor)
    together = threading.Barrier(MAX_THREADS)
    futures = [executor.submit(together.wait, 20) for _ in range(MAX_THREADS)]
    assert sorted(future.result(20) for future in futures) == list(range(MAX_THREADS))
    assert all(executor.submit(lambda number: number, number).result(20) == number for number in range(100))
    assert threads_of() <= MAX_THREADS
    with pytest.raises(ZeroDivisionError):
        executor.submit(lambda: 1 / 0).result(20)
    executor.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(print)


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
