"""A15: the environment's own switches for telemetry are kill switches, too: who wants no signals pays no judge."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.promises.programs import run_program

CALLS = 5
NONE = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")}
PROGRAM = """
    import logging, sys
    from agenteval_otel import accounting, configure, flush, monitor, reload
    from agenteval_otel.evaluators import Func

    calls, target = int(sys.argv[1]), {"type": "json_file", "path": sys.argv[2]}
    evaluated = []
    logging.getLogger("agenteval_otel").addHandler(logging.NullHandler())

    async def judge(evaluation_input):
        evaluated.append(evaluation_input)
        return True

    with_objective = [{"name": "judge", "objective": 0.9}]
    cases = {
        "plain": ({}, {}),
        "otlp": ({"storage": [{"type": "otlp"}]}, {}),
        "storage": ({"storage": [target]}, {}),
        "callback": ({"on_breach": print}, {}),
        "objective": ({"criteria": {"all": with_objective}, "agents": {"answer": {"criteria": "all"}}}, {}),
        "handler": ({}, {"storage": [target]}),
    }
    for name, (settings, own) in cases.items():
        if "storage" in own:
            from agenteval_otel.storage import JsonFileStorageProvider
            own = {"storage": [JsonFileStorageProvider(path=sys.argv[2])]}
        configure(evaluators=[Func.of(judge, criterion_name="judge")], sample_rate=1.0, **settings)

        @monitor(agent="answer", **own)
        def answer(text):
            return text

        before, disabled = len(evaluated), accounting()["disabled"]
        for call in range(calls):
            answer("fine")
        flush(10)
        print(name, len(evaluated) - before, accounting()["disabled"] - disabled)
"""


def counts(target: Path, **env: str) -> dict[str, tuple[int, int]]:
    """Evaluations and disabled calls of each case."""
    finished = run_program(PROGRAM, str(CALLS), str(target), **env)
    assert finished.code == 0, finished.stderr
    lines = [line.split() for line in finished.stdout.splitlines() if line.count(" ") == 2]
    return {name: (int(evaluated), int(disabled)) for name, evaluated, disabled in lines}


@pytest.mark.parametrize("env", [{"OTEL_SDK_DISABLED": "true"}, NONE], ids=["sdk", "exporters"])
def test_without_any_signal_nothing_is_evaluated(env: dict[str, str], tmp_path: Path) -> None:
    """Calls end as `disabled`, unless the results are kept somewhere or an objective is watched."""
    found = counts(tmp_path / "results.jsonl", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", **env)
    off = dict.fromkeys(("plain", "otlp"), (0, CALLS))
    on = dict.fromkeys(("storage", "callback", "objective", "handler"), (CALLS, 0))
    assert found == off | on


@pytest.mark.parametrize(
    "env", [{}, {**NONE, "OTEL_LOGS_EXPORTER": "otlp"}, {"OTEL_SDK_DISABLED": "false"}], ids=["nothing", "logs", "not"]
)
def test_with_a_signal_left_everything_is_evaluated(env: dict[str, str], tmp_path: Path) -> None:
    """One signal that is not switched off is enough; so is a process that has neither provider nor endpoint."""
    found = counts(tmp_path / "results.jsonl", **env)
    assert set(found.values()) == {(CALLS, 0)}
    assert len(found) == 6
