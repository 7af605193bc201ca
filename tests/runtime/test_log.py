"""The package's log lines."""

from __future__ import annotations

import re
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
            r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d WARNING agenteval-otel: annotate\(\) leaves modle out: unknown fact "
            r"\(did you mean 'model'\?\).*\. See docs/annotate.md \[event='fact_left_out' part='modle'\]\n",
        ),
        (
            "import logging; logging.basicConfig()\n",
            r"WARNING:agenteval_otel:annotate\(\) leaves modle out: .*\. See docs/annotate.md "
            r"\[event='fact_left_out' part='modle' why=.*\]\n",
        ),
    ],
)
def test_a_line_names_the_package_once(setup: str, begins: str) -> None:
    """Where nothing is set up, the standard library writes the line alone: it then has time, level
    and name, and says nothing twice. Where a handler is, all facts stay fields."""
    done = subprocess.run(
        [sys.executable, "-c", setup + CODE],
        capture_output=True,
        text=True,
        timeout=60,
        env=bare_environment(),
        check=True,
    )
    assert re.match(begins, done.stderr)
