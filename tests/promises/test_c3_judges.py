"""C3, of judges: ones that hang, or want to end their thread, silence neither others nor themselves.

Hung are connections that are open and never answer, functions that never return and coroutines that never end; all of
them as async evaluators of a live process, with its sixty-four places.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import Any

import pytest

from agenteval_otel import EvaluationInput
from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators import LLMJudge
from agenteval_otel.execution import Executor
from agenteval_otel.judges import AnthropicJudge, BreakerSettings, Judge, OpenAICompatibleJudge
from agenteval_otel.testing import ModelReply, ModelServer, ScriptedJudge
from tests.judges.asking import hosted
from tests.promises.figures import Recorder, sized
from tests.testing.evaluations import evaluate

CALLS, HUNG, DEADLINE_S = sized(400, 1_000), 10, 1.5
BOTH = pytest.mark.parametrize("kind", [AnthropicJudge, OpenAICompatibleJudge])
GOOD = '{"evidence": ["q"], "reason": "so it is", "score": true}'


def _given(number: int, hangs: bool) -> EvaluationInput:
    return EvaluationInput(response=f"{'hang' if hangs else 'fine'} {number}", prompt="a question")


async def _word_of(executor: Executor, evaluator: LLMJudge, given: EvaluationInput) -> str:
    try:
        (result,) = await evaluate(executor, evaluator, given)
    except EvaluationError as error:
        return error.error_type
    return result.error_type or result.status


async def _side_by_side(healthy: LLMJudge, hung: list[LLMJudge]) -> tuple[Counter[str], Counter[str], float]:
    """What so many evaluations gave, ten hung ones first among them, and how long the healthy ones took."""
    executor = Executor(live=True)
    began = time.monotonic()
    try:
        stuck = [asyncio.create_task(_word_of(executor, one, _given(number, True))) for number, one in enumerate(hung)]
        await asyncio.sleep(0)
        good = await asyncio.gather(
            *(_word_of(executor, healthy, _given(number, False)) for number in range(CALLS - len(hung)))
        )
        took_s = time.monotonic() - began
        return Counter(good), Counter(await asyncio.gather(*stuck)), took_s
    finally:
        executor.close()


def _provider(body: dict[str, Any]) -> ModelReply:
    return ModelReply(hangs="before") if "hang " in str(body) else ModelReply(text=GOOD)


@BOTH
@pytest.mark.parametrize("guarded", [False, True], ids=["bare", "with a breaker"])
@pytest.mark.sized
def test_half_open_connections_hold_up_nobody(kind: type[Judge], guarded: bool, promise: Recorder) -> None:
    """Ten questions that are never answered, of one endpoint and breaker: all the other results are delivered."""
    with ModelServer([_provider]) as server:
        gate = BreakerSettings(window_s=61.0) if guarded else None  # judges of one endpoint and settings share it
        judges = [hosted(kind, server, deadline_s=deadline_s, breaker=gate) for deadline_s in (60.0, DEADLINE_S)]
        healthy, hung = (LLMJudge(judge=judge, criterion_name="fine", timeout_s=60.0) for judge in judges)
        good, bad, took_s = asyncio.run(_side_by_side(healthy, [hung] * HUNG))
    promise("C3", figure=f"{good['scored']} of {CALLS - HUNG} judged beside {HUNG} hung connections, in {took_s:.1f} s")
    assert good == {"scored": CALLS - HUNG}
    assert bad == {"timeout": HUNG}


@pytest.mark.sized
def test_functions_that_never_return_hold_up_nobody(promise: Recorder) -> None:
    """Ten plain functions that hang, as judges of the program's own: the others are asked all the same."""
    ends = threading.Event()

    def hangs(prompt: str) -> str:
        ends.wait()
        return GOOD

    def answers(prompt: str) -> str:
        return GOOD

    try:
        hung = [LLMJudge(judge=hangs, criterion_name=f"h{number}", timeout_s=DEADLINE_S) for number in range(HUNG)]
        fine = LLMJudge(judge=answers, criterion_name="fine", timeout_s=60.0)
        good, bad, _ = asyncio.run(_side_by_side(fine, hung))
        assert good == {"scored": CALLS - HUNG}
        assert bad == {"timeout": HUNG}
    finally:
        ends.set()
    promise("C3", figure=f"{good['scored']} of {CALLS - HUNG} judged beside {HUNG} hung functions")


def test_a_function_that_always_hangs_leaves_few_threads(promise: Recorder) -> None:
    """After sixteen calls that never came back it is asked no more; when one comes back, it is."""
    ends, before = threading.Event(), threading.active_count()

    def hangs(prompt: str) -> str:
        ends.wait()
        return GOOD

    evaluator = LLMJudge(judge=hangs, criterion_name="fine", timeout_s=0.02)

    async def work() -> list[str]:
        executor = Executor(live=True)
        words = [await _word_of(executor, evaluator, _given(number, True)) for number in range(40)]
        assert threading.active_count() - before <= 16 + 2
        ends.set()
        last = time.monotonic() + 30
        while time.monotonic() < last:
            other = LLMJudge(judge=evaluator.judge, criterion_name="x")
            if await _word_of(executor, other, _given(0, False)) == "scored":
                words.append("scored")
                break
            await asyncio.sleep(0.01)
        executor.close()
        return words

    assert asyncio.run(work()) == ["timeout"] * 40 + ["scored"]
    promise("C3", figure="a function that always hangs: 16 threads left behind")


ENDINGS = [("function", kind) for kind in (SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration)]


@pytest.mark.parametrize(("form", "ending"), [*ENDINGS, ("coroutine", SystemExit)])
def test_a_judge_that_wants_to_end_everything(form: str, ending: type[BaseException]) -> None:
    """`SystemExit` and the like out of a judge of the program's own is that judgement's failure, and nobody else's."""

    def ends(prompt: str) -> str:
        raise ending

    async def ends_later(prompt: str) -> str:
        raise ending

    bad = LLMJudge(judge=ends if form == "function" else ends_later, criterion_name="bad")
    good = LLMJudge(judge=ScriptedJudge(fallback=GOOD), criterion_name="fine")

    async def work() -> list[str]:
        executor = Executor(live=True)
        words = await asyncio.gather(*(_word_of(executor, one, _given(0, False)) for one in (bad, good) * 5))
        executor.close()
        return words

    assert asyncio.run(work()) == ["server_error", "scored"] * 5


_PROGRAM = """
import threading
from agenteval_otel import EvaluationInput, EvaluationRunConfig, configure, monitor, run_evaluation_sync
from agenteval_otel.evaluators import LLMJudge

def hangs(prompt):
    threading.Event().wait()

evaluator = LLMJudge(judge=hangs, criterion_name="fine", timeout_s=0.2)
run = EvaluationRunConfig(evaluators=[evaluator])
print(run_evaluation_sync(EvaluationInput(response="an answer", prompt="q"), run).results[0].error_type)
configure(evaluators=[evaluator], sample_rate=1.0, storage=[])
monitor(agent="agent")(lambda: "an answer")()
raise SystemExit(3)
"""


def test_a_function_that_hangs_does_not_keep_the_process(promise: Recorder) -> None:
    """The process ends in time and with its own code, whatever its judges wait for."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=False,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "timeout\n"), done.stderr
    assert "Traceback" not in done.stderr
    promise("C3", figure=f"a process with hung judges ended in {time.monotonic() - began:.1f} s, start included")
