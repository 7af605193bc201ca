"""Importing the package is cheap and leaves the process as it was."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from typing import Any

import pytest

HEAVY = (
    "anthropic",
    "jsonschema_rs",
    "numpy",
    "grpc",
    "sqlalchemy",
    "opentelemetry.exporter",
    "opentelemetry.sdk",
    "rapidfuzz",
    "fastapi",
)

WATCH = """
import asyncio, gc, json, logging, os, random, signal, socket, sys, threading, warnings
opened = []
class Watched(socket.socket):
    def __init__(self, *arguments, **keywords):
        opened.append(repr(arguments))
        super().__init__(*arguments, **keywords)
socket.socket = Watched
audited = []
def audit(event, arguments):
    if event.startswith(("socket.", "subprocess.", "os.exec", "os.fork", "os.system")):
        audited.append(event)
sys.addaudithook(audit)
def state():
    return {
        "signals": {number: repr(signal.getsignal(number)) for number in signal.valid_signals()},
        "hooks": [repr(getattr(sys, name)) for name in ("excepthook", "unraisablehook", "displayhook")],
        "traces": [repr(sys.gettrace()), repr(sys.getprofile()), repr(threading.excepthook)],
        "asyncgen": repr(sys.get_asyncgen_hooks()), "policy": repr(type(asyncio.get_event_loop_policy())),
        "warnings": [repr(one) for one in warnings.filters], "showwarning": repr(warnings.showwarning),
        "handlers": repr(logging.getLogger().handlers), "level": logging.getLogger().level,
        "ours": repr(logging.getLogger("agenteval_otel").handlers), "class": repr(logging.getLoggerClass()),
        "threads": threading.active_count(), "recursion": sys.getrecursionlimit(), "switch": sys.getswitchinterval(),
        "random": hash(random.getstate()), "gc": [gc.isenabled(), gc.get_threshold()],
        "environment": dict(os.environ), "path": sys.path, "folder": os.getcwd(),
        "locale": __import__("locale").setlocale(0),
    }
before = state()
"""
TELL = """
after = state()
print(json.dumps({
    "changed": {key: [before[key], after[key]] for key in before if before[key] != after[key]},
    "modules": sorted(sys.modules), "opened": opened, "audited": audited,
}, default=str))
"""


@functools.cache
def run(code: str, *, watched: bool = True) -> dict[str, Any]:
    """What a fresh interpreter that runs the code has to tell."""
    script = f"{WATCH}\n{code}\n{TELL}" if watched else code
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "AGENTEVAL_"))}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    actual: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return actual


IMPORTS = {
    "package": "import agenteval_otel",
    "monitor": "from agenteval_otel import monitor, annotate, configure, flush, shutdown, accounting, Settings",
    "rooms": "import agenteval_otel.evaluators, agenteval_otel.sampling, agenteval_otel.storage, agenteval_otel.engine",
    "decorated": "from agenteval_otel import monitor\nhandler = monitor(str.upper)",
}


@pytest.mark.parametrize("name", IMPORTS)
def test_nothing_heavy_is_imported(name: str) -> None:
    """Importing, and decorating, loads no vendor's package, no exporter and no SDK."""
    modules = run(IMPORTS[name])["modules"]
    loaded = [module for module in modules if any(module == heavy or module.startswith(f"{heavy}.") for heavy in HEAVY)]
    assert loaded == []


@pytest.mark.parametrize("name", IMPORTS)
def test_the_process_stays_as_it_was(name: str) -> None:
    """Importing, and decorating, changes no hook, signal handler, warning filter, logger or random state; no thread
    starts and no socket opens."""
    outcome = run(IMPORTS[name])
    assert outcome["changed"] == {}
    assert (outcome["opened"], outcome["audited"]) == ([], [])


def test_the_bare_package_loads_none_of_its_rooms() -> None:
    """`import agenteval_otel` is a table of contents: rooms load when a name is first used."""
    modules = [module for module in run("import agenteval_otel")["modules"] if module.startswith("agenteval_otel")]
    assert modules == ["agenteval_otel"]


def test_a_monitored_process_ends_clean() -> None:
    """A process that monitors with the defaults and no telemetry ends with code 0; only our one warning is logged."""
    code = (
        "import logging; logging.disable(logging.CRITICAL)\n"
        "from agenteval_otel import monitor, flush, accounting\n"
        "handler = monitor(str.upper)\n"
        "assert handler('a') == 'A' and flush(20)\n"
        "import json; print(json.dumps({'evaluated': accounting()['evaluated']}))"
    )
    assert run(code, watched=False) == {"evaluated": 1}
