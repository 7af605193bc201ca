"""The package's log lines."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.backends.process import bare_environment

CODE = """
from agenteval_otel import annotate, configure, flush, monitor
configure(storage="console", telemetry={"signals": []})
@monitor
def answer(question):
    annotate(modle="m-1")
    return "On Tuesday."
answer("When?")
assert flush(20)
"""


@pytest.mark.parametrize(
    ("setup", "begins"),
    [
        (
            "",
            "agenteval-otel: event='fact_left_out' part='modle' why=\"unknown fact (did you mean 'model'?)",
        ),
        (
            "import logging; logging.basicConfig()\n",
            "WARNING:agenteval_otel:event='fact_left_out' part='modle'",
        ),
    ],
)
def test_a_line_names_the_package_once(setup: str, begins: str) -> None:
    """Where nothing is set up, the standard library writes lines without the logger's name. A
    misspelled fact is named with the nearest one."""
    done = subprocess.run(
        [sys.executable, "-c", setup + CODE],
        capture_output=True,
        text=True,
        timeout=60,
        env=bare_environment(),
        check=True,
    )
    assert done.stderr.startswith(begins)
