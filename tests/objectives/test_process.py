"""In a process: reloading, forks, and functions that a settings file names."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from agenteval_otel import configure, disable, enable, flush, monitor
from agenteval_otel.config import default_pipeline
from agenteval_otel.engine.capabilities.objectives.watch import Objectives
from agenteval_otel.engine.objectives import BreachSettings
from agenteval_otel.engine.pipeline import InlineDispatcher
from agenteval_otel.testing import RecordedTelemetry
from tests.objectives.support import QUICK, Good, Kept


def set_up(
    telemetry: RecordedTelemetry, breaches: Kept, recoveries: Kept, **changes: object
) -> None:
    configure(
        **{
            "evaluators": [Good()],
            "sample_rate": 1.0,
            "storage": [telemetry.storage()],
            "dispatcher": InlineDispatcher(),
            "criteria": {"default": [{"name": "good", "objective": 0.9, "independent": True}]},
            "breach": QUICK,
            "on_breach": breaches,
            "on_recovery": recoveries,
            **changes,
        }
    )  # type: ignore[arg-type]


def ask(message: str, times: int) -> None:
    handler = monitor(agent="shop")(lambda text: text)
    for _ in range(times):
        handler(message)


@pytest.mark.parametrize(
    ("changes", "again"),
    [
        ({"agent_span": "never"}, 0),
        ({"breach": BreachSettings(false_alarm_every=400, minimum=10)}, 1),
        ({"criteria": {"default": [{"name": "good", "objective": 0.8}]}}, 1),
        ({"criteria": {"default": [{"name": "good", "objective": 0.9, "of_last": 20}]}}, 1),
    ],
)
def test_it_begins_anew_when_its_own_settings_change(
    telemetry: RecordedTelemetry, changes: dict[str, object], again: int
) -> None:
    """Other settings do not repeat the report of a breach; the new callback gets its recovery."""
    first, second, recoveries = Kept(), Kept(), Kept()
    set_up(telemetry, first, Kept())
    ask("bad", 30)
    assert flush(5.0)
    set_up(telemetry, second, recoveries, **changes)
    ask("bad", 30)
    ask("good", 300)
    assert flush(5.0)
    assert (len(first), len(second), len(recoveries)) == (1, again, 1)
    assert again or recoveries[0].since_ns == first[0].since_ns


def test_disabled_and_enabled_again(telemetry: RecordedTelemetry) -> None:
    """Disabled, nothing is known of answers; a breach of the last answers is reported before the
    process ends.
    """
    breaches = Kept()
    set_up(telemetry, breaches, Kept())
    disable()
    ask("bad", 50)
    enable()
    assert len(default_pipeline().capabilities.of(Objectives).tracks) == 0
    ask("bad", 30)
    default_pipeline().shutdown(5.0)
    assert len(breaches) == 1


FORKS = """
    import os, sys
    from agenteval_otel import configure, flush, monitor, shutdown
    from agenteval_otel.engine.capabilities.objectives.watch import Objectives
    from agenteval_otel.engine.objectives import BreachSettings
    from agenteval_otel.config import default_pipeline

    told = []
    configure(sample_rate=1.0, storage=[], on_breach=told.append, breach=BreachSettings(minimum=10),
              criteria={"default": [{"name": "response_health", "objective": 0.9, "independent": True}]})
    handler = monitor(agent="shop")(lambda text: text)
    objectives = default_pipeline().capabilities.of(Objectives)
    for _ in range(30):
        handler("")
    assert flush(10) and len(told) == 1
    child = os.fork()
    if child == 0:
        told.clear()
        began = len(objectives.tracks)
        for _ in range(30):
            handler("")
        fine = flush(10) and began == 0 and len(told) == 1
        os._exit(0 if fine else 1)
    _, status = os.waitpid(child, 0)
    for _ in range(30):
        handler("")
    assert flush(10) and len(told) == 1, told
    shutdown()
    print("child", os.waitstatus_to_exitcode(status))
"""


def test_a_forked_child_begins_anew(tmp_path: Path) -> None:
    """It reports its own breach, not its parent's; the parent goes on."""
    script = tmp_path / "forks.py"
    script.write_text(textwrap.dedent(FORKS))
    finished = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={
            "PATH": "",
            "PYTHONWARNINGS": "error,ignore::DeprecationWarning",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )
    assert (finished.returncode, finished.stdout.strip()) == (0, "child 0"), finished.stderr
