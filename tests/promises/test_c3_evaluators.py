"""C3: an evaluator that hangs, exits or crashes silences neither others nor itself."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import EvaluationInput
from agenteval_otel.engine.execution import MAX_STRIKES, Executor
from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators import Evaluator, LLMJudge
from agenteval_otel.judges import AnthropicJudge, BreakerSettings, Judge, OpenAICompatibleJudge
from agenteval_otel.testing import ModelReply, ModelServer
from tests.judges.asking import hosted
from tests.promises.figures import Recorder, sized
from tests.promises.programs import run_program
from tests.testing.computing import Computing, Troubled
from tests.testing.evaluations import evaluate

HEALTHY, TROUBLED, LIMIT_S = 1000, 10, 0.3
EXPECTED = {"hang": "timeout", "exit": "SystemExit", "segfault": "crashed"}
ROUNDS = 3


async def word_of(executor: Executor, evaluator: Evaluator, text: str) -> str:
    """The error type of the evaluation or of its result; the status of a result without one."""
    try:
        (result,) = await evaluate(
            executor, evaluator, EvaluationInput(response=text, prompt="a question")
        )
    except EvaluationError as error:
        return error.error_type
    return result.error_type or result.status


async def side_by_side() -> tuple[list[str], dict[str, list[str]]]:
    """What a thousand healthy evaluations gave while others hung, left and crashed among them."""
    healthy = Computing()
    work: list[tuple[Evaluator, str]] = []
    for number in range(TROUBLED):
        work += [(healthy, "fine")] * (HEALTHY // TROUBLED)
        troubled = Troubled(criterion_name=f"t{number}", timeout_s=LIMIT_S)
        work += [(troubled, text) for text in EXPECTED]
    words: dict[str, list[str]] = {"fine": [], **{text: [] for text in EXPECTED}}
    with closing(Executor(live=True)) as executor:
        tasks = [word_of(executor, evaluator, text) for evaluator, text in work]
        for (_, text), word in zip(work, await asyncio.gather(*tasks), strict=True):
            words[text].append(word)
    return words.pop("fine"), words


async def time_to_come_back() -> list[float]:
    """Seconds from the failure of a crash or an overrun to the next healthy result."""
    healthy, actual = Computing(), []
    with closing(Executor(live=True)) as executor:
        await word_of(executor, healthy, "fine")
        for number, text in enumerate(["segfault", "hang", "_exit", "segfault"]):
            trouble = Troubled(criterion_name=f"t{number}", timeout_s=LIMIT_S)
            await word_of(executor, trouble, "fine")
            await word_of(executor, trouble, text)
            began = time.monotonic()
            assert await word_of(executor, healthy, "fine") == "scored"
            actual.append(time.monotonic() - began)
    return actual


async def again_and_again() -> tuple[list[str], float]:
    """What an evaluator gives that crashes every time, and how long it takes to say no at last."""
    bad = Troubled()
    with closing(Executor(live=True)) as executor:
        words = [await word_of(executor, bad, "segfault") for _ in range(MAX_STRIKES)]
        began = time.monotonic()
        words += [await word_of(executor, bad, "segfault") for _ in range(TROUBLED - MAX_STRIKES)]
        return words, time.monotonic() - began


def test_hangs_exits_and_crashes_silence_nobody(promise: Recorder) -> None:
    """Ten hangs, ten exits and ten segmentation faults among a thousand healthy evaluations: all of
    these arrive.
    """
    good, bad = asyncio.run(side_by_side())
    promise(
        "C3",
        figure=f"{good.count('scored')} of {HEALTHY} healthy delivered beside 30 hangs, exits and crashes",
    )
    assert good.count("scored") == len(good) == HEALTHY
    assert bad == {text: [word] * TROUBLED for text, word in EXPECTED.items()}


def test_the_worker_is_back_within_a_second(promise: Recorder) -> None:
    """After a crash or a kill at the time limit the next evaluation is done within a second."""
    # Of each failure the round counts that the machine disturbed least.
    rounds = [asyncio.run(time_to_come_back()) for _ in range(ROUNDS)]
    actual = [min(times) for times in zip(*rounds, strict=True)]
    promise("C3", figure=f"worker back within {max(actual):.3f} s")
    assert max(actual) <= 1.0


def test_who_crashes_again_and_again_is_quarantined(
    promise: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    """After three crashes an evaluator fails at once, and the log says so once."""
    words, took_s = asyncio.run(again_and_again())
    assert words == ["crashed"] * MAX_STRIKES + ["quarantined"] * (TROUBLED - MAX_STRIKES)
    assert took_s < 1.0
    lines = [line for line in caplog.records if "evaluator_quarantined" in line.getMessage()]
    assert len(lines) == 1
    promise("C3", figure=f"quarantined after {MAX_STRIKES} crashes")


KILLS = 4
PROGRAM = """
    import builtins, json, os, signal, sys, threading, time
    from pathlib import Path
    from agenteval_otel import accounting, configure, flush, monitor
    from agenteval_otel.evaluators import Func
    from tests.promises.programs import children
    from tests.testing.computing import is_elsewhere

    builtins.is_host = True

    target, kills = Path(sys.argv[1]), int(sys.argv[2])

    killed = []
    def kill():
        pause = threading.Event()
        while len(killed) < kills:
            for pid in children():
                if pid not in killed:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            pause.wait(0.002)

    elsewhere = Func.of(is_elsewhere, execution="process")
    storage = [{"type": "json_file", "path": str(target)}]
    configure(evaluators=[elsewhere], storage=storage, sample_rate=1.0)

    @monitor
    def answer(text):
        return text

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    calls, until, scores = 0, time.monotonic() + 90, []
    while time.monotonic() < until and 1.0 not in scores:
        answer("fine")
        calls += 1
        flush(2)
        killer.join(0.1)  # a call now and then, as in a quiet application
        lines = target.read_text().splitlines() if target.exists() else []
        scores = [float(result["score"]) for line in lines for result in json.loads(line)["results"]]
    evaluated = accounting()["evaluated"] == calls
    print("report", json.dumps([len(killed), 1.0 in scores, 0.0 in scores, evaluated, flush(5)]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_process_that_is_killed_while_it_starts_comes_back(
    tmp_path: Path, promise: Recorder
) -> None:
    """Killed four times before it can say a word, it is started again; meanwhile every answer is
    evaluated.
    """
    report = run_program(
        PROGRAM, str(tmp_path / "results.jsonl"), str(KILLS), timeout_s=140.0
    ).report()
    assert report == [KILLS, True, True, True, True]
    promise("C3", figure=f"worker process killed {KILLS} times while it starts: started again")


# --- judges
# -----------------------------------------------------------------------------------------------------------

CALLS, HUNG, DEADLINE_S = sized(400, 1_000), 10, 1.5
BOTH = pytest.mark.parametrize("kind", [AnthropicJudge, OpenAICompatibleJudge])
GOOD = '{"evidence": ["q"], "reason": "so it is", "score": true}'


async def _side_by_side(healthy: LLMJudge, hung: list[LLMJudge]) -> float:
    """Evaluate so often, ten hung ones first; all others are scored. Returns how long those took."""
    began = time.monotonic()
    with closing(Executor(live=True)) as executor:
        stuck = [
            asyncio.create_task(word_of(executor, item, f"hang {number}"))
            for number, item in enumerate(hung)
        ]
        await asyncio.sleep(0)
        fine = (word_of(executor, healthy, f"fine {number}") for number in range(CALLS - len(hung)))
        good = await asyncio.gather(*fine)
        took_s = time.monotonic() - began
        assert Counter(good) == {"scored": CALLS - HUNG}
        assert Counter(await asyncio.gather(*stuck)) == {"timeout": HUNG}
        return took_s


def _provider(body: dict[str, Any]) -> ModelReply:
    return ModelReply(hangs="before") if "hang " in str(body) else ModelReply(text=GOOD)


@BOTH
@pytest.mark.parametrize("guarded", [False, True], ids=["bare", "with a breaker"])
@pytest.mark.sized
def test_half_open_connections_hold_up_nobody(
    kind: type[Judge], guarded: bool, promise: Recorder
) -> None:
    """Ten questions that are never answered, of one endpoint and breaker: all the other results are
    delivered.
    """
    with ModelServer([_provider]) as server:
        # judges of one endpoint and settings share it
        breaker = BreakerSettings(window_s=61.0) if guarded else None
        judges = [
            hosted(kind, server, deadline_s=deadline_s, breaker=breaker)
            for deadline_s in (60.0, DEADLINE_S)
        ]
        healthy, hung = (
            LLMJudge(judge=judge, criterion_name="fine", timeout_s=60.0) for judge in judges
        )
        took_s = asyncio.run(_side_by_side(healthy, [hung] * HUNG))
    promise(
        "C3",
        figure=f"{CALLS - HUNG} judged beside {HUNG} hung connections, in {took_s:.1f} s",
    )


@pytest.mark.sized
def test_functions_that_never_return_hold_up_nobody(promise: Recorder) -> None:
    """Ten plain functions that hang, as judges of the program's own: the others are asked all the
    same.
    """
    ends = threading.Event()

    def hangs(prompt: str) -> str:
        ends.wait()
        return GOOD

    try:
        hung = [
            LLMJudge(judge=hangs, criterion_name=f"h{number}", timeout_s=DEADLINE_S)
            for number in range(HUNG)
        ]
        fine = LLMJudge(judge=lambda prompt: GOOD, criterion_name="fine", timeout_s=60.0)
        asyncio.run(_side_by_side(fine, hung))
    finally:
        ends.set()
    promise("C3", figure=f"{CALLS - HUNG} judged beside {HUNG} hung functions")


def test_a_function_that_always_hangs_leaves_few_threads(promise: Recorder) -> None:
    """After sixteen calls that never came back it is asked no more; when one comes back, it is."""
    ends, before = threading.Event(), threading.active_count()

    def hangs(prompt: str) -> str:
        ends.wait()
        return GOOD

    evaluator = LLMJudge(judge=hangs, criterion_name="fine", timeout_s=0.02)

    async def work() -> list[str]:
        executor = Executor(live=True)
        words = [await word_of(executor, evaluator, f"hang {number}") for number in range(40)]
        assert threading.active_count() - before <= 16 + 2
        ends.set()
        last = time.monotonic() + 30
        while time.monotonic() < last:
            other = LLMJudge(judge=evaluator.judge, criterion_name="x")
            if await word_of(executor, other, "fine") == "scored":
                words.append("scored")
                break
            await asyncio.sleep(0.01)
        executor.close()
        return words

    assert asyncio.run(work()) == ["timeout"] * 40 + ["scored"]
    promise("C3", figure="a function that always hangs: 16 threads left behind")


# --- the background thread
# --------------------------------------------------------------------------------------------

STALLS = 8
STALLING = """
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

        async def save_result(self, aggregated):
            hold("storage", "hang" if aggregated.agent == "troubled" else "")

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
    by_agent = pipeline.accounting.by_agent()
    print("report", json.dumps({
        "in_time": time.monotonic() < until, "healthy": by_agent["healthy"]["evaluated"], "outcomes": accounting(),
        "troubled": {name: count for name, count in by_agent["troubled"].items() if count},
        "failures": pipeline.accounting.failures, "results": pipeline.accounting.results,
    }), flush=True)
    os._exit(0)
"""
# What becomes of the eight calls that hang, how often the thread is replaced, and what the log
# names.
CASES: dict[str, tuple[dict[str, int], int, str]] = {
    # Moved to a thread after the first time, and quarantined after the third, as any evaluator that
    # hangs.
    "evaluator": ({"evaluated": STALLS}, 1, "holds_the_loop"),
    "capture": ({"pipeline_failed": 3, "capture_failed": STALLS - 3}, 3, "capture:capture"),
    "sampler": ({"pipeline_failed": STALLS}, 3, "sampler:reading"),
    # Quarantined, it fails: text of a redactor that fails does not leave.
    "redactor": ({"pipeline_failed": 3, "evaluated": STALLS - 3}, 3, "redaction:holding"),
    # The look-up is tried once more, then evaluation goes on without; a save that hangs counts as
    # failed.
    "ground truth": ({"evaluated": STALLS}, 3, "ground_truth:slow"),
    "storage": ({"evaluated": STALLS}, 3, "storage:kept"),
}


@pytest.mark.parametrize("what", CASES)
def test_the_background_thread_never_dies_for_good(what: str, promise: Recorder) -> None:
    """Eight stalls in a row: every call that waited behind is evaluated, the part is named and
    quarantined.
    """
    expected, times, name = CASES[what]
    finished = run_program(STALLING, what, str(STALLS), timeout_s=110.0)
    report = finished.report()
    outcomes, results, failures = (report[key] for key in ("outcomes", "results", "failures"))
    assert report["in_time"], finished.stdout
    assert report["healthy"] == 1 + 20 * STALLS
    assert report["troubled"] == expected
    assert sum(outcomes.values()) == 1 + 21 * STALLS
    assert sum(results.values()) == outcomes["evaluated"], (
        "each evaluated answer has its result, once"
    )
    assert results["failed"] == (STALLS if what == "evaluator" else 0)
    assert failures["background_thread"] == times
    lines = [line for line in finished.lines("line") if "background_thread_replaced" in line]
    assert lines, "it is in the log"
    assert all(name in line for line in lines)
    assert any("_quarantined" in line and name in line for line in finished.lines("line"))
    if what == "storage":
        assert failures["storage:kept"] >= STALLS
    promise(
        "C3",
        figure=f"background thread held by {what} again and again: replaced {times} times, others lost none",
    )
