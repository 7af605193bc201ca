"""D1: SIGTERM ends a process the way its server wants, and what was taken is delivered or counted."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.pipeline import EXIT_TIMEOUT_S
from tests.backends.faults import free_ports
from tests.backends.process import bare_environment
from tests.promises.figures import Recorder
from tests.promises.programs import PROJECT, run_program
from tests.promises.receiver import Receiver

CALLS = 200
PLAIN = """
    import asyncio, atexit, os, signal, sys, threading, time
    host, asked, judge, target, calls = sys.argv[1], sys.argv[2] == "asked", sys.argv[3], sys.argv[4], int(sys.argv[5])
    from agenteval_otel import accounting, annotate, configure, monitor
    from agenteval_otel.storage import JsonFileStorageProvider, OtlpStorageProvider
    made = 0

    def tell():
        print("outcomes", sum(accounting().values()), made, flush=True)

    def own(number, frame):
        print("host_handler", number, flush=True)
        sys.exit(3)

    atexit.register(tell)
    before = {"none": signal.SIG_DFL, "ignores": signal.SIG_IGN}.get(host, own)
    if host != "later":
        signal.signal(signal.SIGTERM, before)

    async def slow(value):
        await asyncio.sleep(0.2)
        return True

    async def hangs(value):
        await asyncio.Event().wait()

    storage = (OtlpStorageProvider(endpoint=target, protocol="http/protobuf") if target.startswith("http")
               else JsonFileStorageProvider(path=target))
    configure(evaluators=[slow if judge == "slow" else hangs], storage=[storage], sample_rate=1.0,
              **({"handle_sigterm": True} if asked else {}))
    if host == "later":
        before = own
        signal.signal(signal.SIGTERM, own)

    @monitor
    def answer(question):
        annotate(session_id=question)
        return "an answer to " + question

    enough = threading.Event()
    if host == "busy":
        threading.Thread(target=lambda: enough.wait() and os.kill(os.getpid(), signal.SIGTERM), daemon=True).start()
    while made < calls or host == "busy":
        made += 1
        answer(str(made))
        if made == 200:
            enough.set()
    print("ours", signal.getsignal(signal.SIGTERM) is not before, flush=True)
    print("main_ended", time.monotonic(), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    print("went_on", flush=True)
    if host != "ignores":
        threading.Event().wait(20)
"""


def margin_s() -> float:
    """About a second on an idle machine; on a busy one more, as it takes more to import the package
    there.
    """
    began = time.monotonic()
    run_program("from agenteval_otel import monitor")
    return 0.5 + time.monotonic() - began


def saved(target: Path) -> int:
    ids = (
        [json.loads(line)["sessionId"] for line in target.read_text().splitlines()]
        if target.exists()
        else []
    )
    assert len(ids) == len(set(ids))
    return len(ids)


@pytest.mark.parametrize(("host", "code"), [("none", -signal.SIGTERM), ("own", 3), ("later", 3)])
def test_a_plain_program_that_asks_for_it_delivers_everything(
    host: str, code: int, python: str, tmp_path: Path, promise: Recorder
) -> None:
    """The host's handler runs, and the exit status is the one it would have been."""
    target = tmp_path / "results.jsonl"
    finished = run_program(PLAIN, host, "asked", "slow", str(target), str(CALLS), python=python)
    assert (finished.code, finished.stderr) == (code, ""), finished
    assert finished.lines("host_handler") == ([] if host == "none" else [str(int(signal.SIGTERM))])
    assert finished.lines("ours") == [str(host != "later")]
    promise(
        "D1",
        figure=f"plain Python: {saved(target)} of {CALLS} delivered in {finished.exit_s:.1f} s",
    )
    assert saved(target) == CALLS
    assert finished.exit_s <= EXIT_TIMEOUT_S + margin_s()


@pytest.mark.parametrize(
    ("host", "requests", "code"),
    [("none", "not asked", -signal.SIGTERM), ("own", "not asked", 3), ("ignores", "asked", 0)],
)
def test_nothing_of_ours_is_installed_unless_it_is_wanted(
    host: str, requests: str, code: int, tmp_path: Path
) -> None:
    """Without the setting the signal is the host's alone; one that the host ignores stays ignored
    with it.
    """
    target = tmp_path / "results.jsonl"
    finished = run_program(PLAIN, host, requests, "slow", str(target), "5")
    assert finished.lines("ours") == ["False"]
    assert (finished.code, finished.stderr) == (code, "")
    assert host != "none" or finished.exit_s <= margin_s(), (
        "the default action takes no time of ours"
    )
    assert host != "ignores" or ("went_on" in finished.stdout and saved(target) == 5)


def test_what_cannot_be_delivered_in_time_is_counted(receiver: Receiver, promise: Recorder) -> None:
    """With a judge that hangs the process ends in time, and its last metrics say that each call was
    dropped.
    """
    finished = run_program(PLAIN, "none", "asked", "hangs", receiver.endpoint, str(CALLS))
    counted = receiver.totals("agenteval.responses", "agenteval.outcome")
    assert finished.code == -signal.SIGTERM, finished.stderr
    promise(
        "D1", figure=f"hung judge: {counted} of {CALLS} counted, ended in {finished.exit_s:.1f} s"
    )
    assert finished.exit_s <= EXIT_TIMEOUT_S + margin_s()
    assert counted == {"dropped_shutdown": CALLS}


def test_a_signal_in_the_middle_of_a_call_costs_at_most_that_one() -> None:
    """The handler of a program that calls without a pause finds every call counted, but for the one
    under way.
    """
    finished = run_program(PLAIN, "busy", "asked", "slow", "/dev/null", "0")
    assert finished.code == 3, finished.stderr
    # that it samples less under such a load it may say
    assert "Traceback" not in finished.stderr, finished.stderr
    counted, made = map(int, finished.lines("outcomes")[0].split())
    assert made >= 200
    assert made - 1 <= counted <= made


APPLICATION = """
    import asyncio, sys
    from agenteval_otel import annotate, configure, flush, monitor
    from agenteval_otel.storage import JsonFileStorageProvider

    async def slow(value):
        await asyncio.sleep(0.3)
        return True

    configure(evaluators=[slow], storage=[JsonFileStorageProvider(path={target!r})], sample_rate=1.0,
              handle_sigterm={asked!r})

    @monitor
    def answer(question):
        annotate(session_id=question)
        return "an answer to " + question

    def wsgi(environ, start_response):
        start_response("200 OK", [("content-type", "text/plain"), ("connection", "close")])
        return [answer(environ["PATH_INFO"]).encode()]

    async def asgi(scope, receive, send):
        if scope["type"] == "lifespan":
            await receive()
            await send({{"type": "lifespan.startup.complete"}})
            await receive()
            print("host_handler lifespan", file=sys.stderr, flush=True)
            if not {asked!r}:
                await asyncio.to_thread(flush, 2.0)
            await send({{"type": "lifespan.shutdown.complete"}})
            return
        body = answer(scope["path"]).encode()
        await send({{"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]}})
        await send({{"type": "http.response.body", "body": body}})
"""


@contextlib.contextmanager
def server(*command: str, folder: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    with (folder / "stderr").open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=bare_environment(PYTHONPATH=str(PROJECT), **environment),
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def get(port: int, path: str, deadline: float) -> str:
    """The answer to a request; the first ones may come before the server listens."""
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)  # a port that nobody listens on yet has no event to wait for
        finally:
            connection.close()


SERVERS: dict[str, Any] = {
    "gunicorn": ("gunicorn", "--workers=2", "--bind=127.0.0.1:{port}", "application:wsgi"),
    "gunicorn with threads": (
        "gunicorn",
        "--threads=4",
        "--bind=127.0.0.1:{port}",
        "application:wsgi",
    ),
    "uvicorn": ("uvicorn", "--port={port}", "application:asgi"),
}
OWN_WORDS = {
    "gunicorn": ("Handling signal: term", "Worker exiting"),
    "gunicorn with threads": ("Handling signal: term",),
    "uvicorn": ("host_handler lifespan", "Finished server process"),
}


@pytest.mark.parametrize("questions", [True, False])
@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_ends_its_own_way_and_everything_is_delivered(
    kind: str, questions: bool, tmp_path: Path, promise: Recorder
) -> None:
    target, requests = tmp_path / "results.jsonl", 40
    source = textwrap.dedent(APPLICATION).format(target=str(target), asked=questions)
    (tmp_path / "application.py").write_text(source)
    (port,) = free_ports(1)
    with server(*(part.format(port=port) for part in SERVERS[kind]), folder=tmp_path) as process:
        deadline = time.monotonic() + 30
        for number in range(requests):
            assert get(port, f"/{number}", deadline) == f"an answer to /{number}"
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        code = process.wait(20)
        took_s = time.monotonic() - began
    document = (tmp_path / "stderr").read_text()
    assert all(words in document for words in OWN_WORDS[kind]), document
    assert "Traceback" not in document, document
    assert code == (-signal.SIGTERM if kind == "uvicorn" else 0), document
    how = "asked" if questions else "not asked"
    promise(
        "D1",
        figure=f"{kind}, {how}: {saved(target)} of {requests} delivered, ended in {took_s:.1f} s",
    )
    assert saved(target) == requests
    assert took_s <= EXIT_TIMEOUT_S + 1.0 + margin_s()
