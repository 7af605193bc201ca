"""A15: the kill switch: a call that is switched off costs next to nothing, a switch works at once,
nothing raises.
"""

from __future__ import annotations

import statistics
import threading
import timeit
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agenteval_otel import accounting, configure, disable, enable, flush, monitor
from agenteval_otel.engine.pipeline import PoolDispatcher
from tests.promises.figures import Recorder
from tests.promises.programs import together
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
    """Off costs little over the bare handler, by far less than a call that is sampled, and no draw
    is made.
    """
    configure(
        storage=[Keeping()],
        evaluators=[Free()],
        sample_rate=1.0,
        dispatcher=PoolDispatcher(max_items=1),
    )
    handler = monitor(answer)
    handler()
    sampled = cost_of(handler, 4000)
    disable()
    off = cost_of(handler) - cost_of(answer)
    promise("A15", figure=f"off {off * 1e6:.2f} us, sampled {sampled * 1e6:.1f} us")
    assert off <= PASS_S * SLACK
    assert off <= sampled / 2


def test_toggling_under_load_is_effective_at_once(promise: Recorder) -> None:
    """While callers call and others toggle, nothing raises; the next call follows each switch; all
    add up.
    """
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
        counted = dict(accounting().items() - before.items())
        assert counted.keys() <= {outcome, "dropped_queue_full", "shed"}
    assert sum(accounting().values()) == CALLERS * CALLS + 3
    promise(
        "A15",
        figure=f"{2 * TOGGLES} switches under load: 0 exceptions, the next call followed each",
    )


# --- the environment's own switches for telemetry: who wants no signals pays no judge
# --------------------------------

NONE = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")}
WITHOUT_USE: list[dict[str, Any]] = [{}, {"storage": [{"type": "otlp"}]}]
IN_USE: list[dict[str, Any]] = [
    {"storage": [Keeping()]},
    {"on_breach": print},
    {
        "criteria": {"all": [{"name": "judge", "objective": 0.9}]},
        "agents": {"answer": {"criteria": "all"}},
    },
]


@pytest.mark.parametrize(
    ("environment", "emits"),
    [
        ({"OTEL_SDK_DISABLED": "true"}, False),
        (NONE, False),
        ({}, True),
        ({**NONE, "OTEL_LOGS_EXPORTER": "otlp"}, True),
        ({"OTEL_SDK_DISABLED": "false"}, True),
    ],
    ids=["sdk off", "exporters off", "nothing said", "logs left", "sdk on"],
)
def test_without_any_signal_nothing_is_evaluated(
    environment: dict[str, str], emits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls end as `disabled`, unless a signal is left, results are kept somewhere or an objective
    is watched.
    """
    endpoint = {} if emits else {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    for name, value in {**endpoint, **environment}.items():
        monkeypatch.setenv(name, value)
    asked: list[Any] = []

    def judge(value: Any) -> bool:
        asked.append(value)
        return True

    for settings in (*WITHOUT_USE, *IN_USE):
        asked.clear()
        configure(evaluators=[judge], sample_rate=1.0, dispatcher="inline", **settings)
        before = Counter(accounting())
        assert monitor(agent="answer")(answer)() == "an answer"
        is_judged = emits or settings in IN_USE
        assert len(asked) == is_judged, settings
        counted = Counter(accounting()) - before
        assert counted == {"evaluated" if is_judged else "disabled": 1}, settings
