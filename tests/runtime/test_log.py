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


FIRST_LINE = """
import random, sys, threading
from agenteval_otel.runtime.log import log
if sys.argv[1] == "threads":
    ended = threading.Event()
    other = threading.Thread(target=ended.wait)
    other.start()
if sys.argv[1] == "loaded":
    import structlog
state = random.getstate()
log.warning("part_failed", part="sampler", error_type="ValueError")
print("structlog" in sys.modules, random.getstate() == state)
if sys.argv[1] == "threads":
    ended.set()
"""


@pytest.mark.parametrize(
    ("setup", "imports"), [("alone", True), ("threads", False), ("loaded", True)]
)
def test_the_first_line_imports_structlog_if_no_thread_is_disturbed(
    setup: str, imports: bool
) -> None:
    """With and without structlog the line is the same, and `random` goes on where it was."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST_LINE, setup],
        capture_output=True,
        text=True,
        timeout=60,
        env=bare_environment(),
        check=True,
    )
    assert done.stdout == f"{imports} True\n"
    assert re.fullmatch(
        r"\S+ \S+ WARNING agenteval-otel: sampler failed \(ValueError\)\. See "
        r"docs/reference/failures\.md \[event='part_failed' part='sampler' "
        r"error_type='ValueError'\]\n",
        done.stderr,
    )
