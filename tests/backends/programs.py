"""Applications of the backend tests: Python programs of their own, without what the environment
happens to say.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .collector import Collector
from .process import bare_environment
from .prometheus import Prometheus
from .sdk import sdk_to

ROOT = Path(__file__).resolve().parents[2]
END_LIMIT_S = 240.0
ARRIVAL_LIMIT_S = 30.0


def started(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """A Python program of its own, in the project's folder."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=bare_environment(**environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(*programs: subprocess.Popen[str]) -> list[str]:
    """What each printed; waits for the programs, and ends those that are still there when something
    went wrong.
    """
    outputs = []
    try:
        for program in programs:
            output, errors = program.communicate(timeout=END_LIMIT_S)
            assert program.returncode == 0, f"{program.args}: {errors}\n{output}"
            outputs.append(output)
    finally:
        for program in programs[len(outputs) :]:
            program.kill()
            program.communicate()
    return outputs


def wait_for_what_was_sent(collector: Collector, prometheus: Prometheus) -> None:
    """Sends one more metric the same way; when it is seen, so is everything before it."""
    with sdk_to(collector, service="last") as sdk:
        sdk.meters.get_meter("last").create_counter("last").add(1)
    prometheus.wait_for(lambda seen: seen.query('last_total{job="last"}'), ARRIVAL_LIMIT_S)
