"""A15: the kill switch: a call that is switched off costs next to nothing, a switch works at once, nothing raises."""

from __future__ import annotations

import statistics
import threading
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agenteval_otel import accounting, configure, disable, enable, flush, monitor
from agenteval_otel.pipeline import PoolDispatcher
from tests.promises.figures import Recorder
from tests.promises.programs import run_program, together
from tests.testing.doubles import Free, Keeping

PASS_S, SLACK = 0.5e-6, 10
CALLERS, CALLS, TOGGLES = 4, 3000, 400


@pytest.fixture(autouse=True)
def _on_again() -> Iterator[None]:
    yield
    enable()


def answer(question: str = "") -> str:
    return "an answer"


def cost_of(function: Callable[[], object], calls: int = 20_000) -> float:
    """Seconds a call: the median of several rounds."""
    return statistics.median(timeit.repeat(function, number=calls, repeat=7)) / calls


def test_a_call_that_is_switched_off_costs_next_to_nothing(promise: Recorder) -> None:
    """Off costs little over the bare handler, by far less than a call that is sampled, and no draw is made."""
    configure(storage=[Keeping()], evaluators=[Free()], sample_rate=1.0, dispatcher=PoolDispatcher(max_items=1))
    handler = monitor(answer)
    handler()
    sampled = cost_of(handler, 4000)
    disable()
    off = cost_of(handler) - cost_of(answer)
    promise("A15", figure=f"off {off * 1e6:.2f} us, sampled {sampled * 1e6:.1f} us")
    assert off <= PASS_S * SLACK
    assert off <= sampled / 2


def test_toggling_under_load_is_effective_at_once(promise: Recorder) -> None:
    """While callers call and others toggle, nothing raises; the next call follows each switch; all add up."""
    configure(storage=[Keeping()], evaluators=[Free()], sample_rate=1.0)
    handler = monitor(answer)
    ready = threading.Barrier(CALLERS + 1)

    def call() -> None:
        ready.wait(20)
        for _ in range(CALLS):
            assert handler() == "an answer"

    def toggle() -> None:
        ready.wait(20)
        for _ in range(TOGGLES):
            disable()
            enable()

    together([*[call] * CALLERS, toggle])
    for switch, outcome in ((disable, "disabled"), (enable, "evaluated"), (disable, "disabled")):
        switch()
        assert flush(20)
        before = accounting()
        handler()
        assert flush(20)
        after = accounting()
        assert {name for name in after if after[name] != before[name]} <= {outcome, "dropped_queue_full", "shed"}
    assert sum(accounting().values()) == CALLERS * CALLS + 3
    promise("A15", figure=f"{2 * TOGGLES} switches under load: 0 exceptions, the next call followed each")


# --- the environment's own switches for telemetry: who wants no signals pays no judge --------------------------------

FEW = 5
NONE = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")}
PROGRAM = """
    import logging, sys
    from agenteval_otel import accounting, configure, flush, monitor
    from agenteval_otel.evaluators import Func

    calls, target = int(sys.argv[1]), {"type": "json_file", "path": sys.argv[2]}
    evaluated = []
    logging.getLogger("agenteval_otel").addHandler(logging.NullHandler())

    async def judge(evaluation_input):
        evaluated.append(evaluation_input)
        return True

    with_objective = [{"name": "judge", "objective": 0.9}]
    cases = {
        "plain": {},
        "otlp": {"storage": [{"type": "otlp"}]},
        "storage": {"storage": [target]},
        "callback": {"on_breach": print},
        "objective": {"criteria": {"all": with_objective}, "agents": {"answer": {"criteria": "all"}}},
    }
    for name, settings in cases.items():
        configure(evaluators=[Func.of(judge, criterion_name="judge")], sample_rate=1.0, **settings)

        @monitor(agent="answer")
        def answer(text):
            return text

        before, disabled = len(evaluated), accounting()["disabled"]
        for call in range(calls):
            answer("fine")
        flush(10)
        print(name, len(evaluated) - before, accounting()["disabled"] - disabled)
"""


def counts(target: Path, **env: str) -> dict[str, tuple[int, int]]:
    finished = run_program(PROGRAM, str(FEW), str(target), **env)
    assert finished.code == 0, finished.stderr
    lines = [line.split() for line in finished.stdout.splitlines() if line.count(" ") == 2]
    return {name: (int(evaluated), int(disabled)) for name, evaluated, disabled in lines}


@pytest.mark.parametrize(
    ("env", "emits"),
    [({"OTEL_SDK_DISABLED": "true"}, False), (NONE, False), ({}, True), ({**NONE, "OTEL_LOGS_EXPORTER": "otlp"}, True),
     ({"OTEL_SDK_DISABLED": "false"}, True)],
    ids=["sdk off", "exporters off", "nothing said", "logs left", "sdk on"],
)  # fmt: skip
def test_without_any_signal_nothing_is_evaluated(env: dict[str, str], emits: bool, tmp_path: Path) -> None:
    """Calls end as `disabled`, unless a signal is left, results are kept somewhere or an objective is watched."""
    endpoint = {} if emits else {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    result = counts(tmp_path / "results.jsonl", **endpoint, **env)
    signals = dict.fromkeys(("plain", "otlp"), (FEW, 0) if emits else (0, FEW))
    assert result == signals | dict.fromkeys(("storage", "callback", "objective"), (FEW, 0))
