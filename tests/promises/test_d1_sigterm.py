"""D1: SIGTERM ends a process the way its server wants, and what was taken is delivered or counted."""

from __future__ import annotations

import signal
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.engine.pipeline import EXIT_TIMEOUT_S
from tests.backends.faults import free_ports
from tests.promises.endings import get, saved, server
from tests.promises.figures import Recorder
from tests.promises.programs import run_program
from tests.promises.receiver import Receiver

CALLS = 200
PLAIN = """
    import asyncio, atexit, os, signal, sys, threading, time
    host, is_default, judge, target = sys.argv[1], sys.argv[2] == "default", sys.argv[3], sys.argv[4]
    calls = int(sys.argv[5])
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
              **({} if is_default else {"handle_sigterm": False}))
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


def saved_once(target: Path) -> int:
    """How many answers the file has, each once."""
    ids = saved(target)
    assert len(ids) == len(set(ids))
    return len(ids)


@pytest.mark.parametrize(("host", "code"), [("none", -signal.SIGTERM), ("own", 3), ("later", 3)])
def test_a_plain_program_delivers_everything(
    host: str, code: int, python: str, tmp_path: Path, promise: Recorder
) -> None:
    """The host's handler runs, and the exit status is the one it would have been, by the defaults."""
    target = tmp_path / "results.jsonl"
    finished = run_program(PLAIN, host, "default", "slow", str(target), str(CALLS), python=python)
    assert (finished.code, finished.stderr) == (code, ""), finished
    assert finished.lines("host_handler") == ([] if host == "none" else [str(int(signal.SIGTERM))])
    assert finished.lines("ours") == [str(host != "later")]
    promise(
        "D1",
        figure=f"plain Python: {saved_once(target)} of {CALLS} delivered in {finished.exit_s:.1f} s",
    )
    assert saved_once(target) == CALLS
    assert finished.exit_s <= EXIT_TIMEOUT_S + margin_s()


@pytest.mark.parametrize(
    ("host", "setting", "code"),
    [("none", "off", -signal.SIGTERM), ("own", "off", 3), ("ignores", "default", 0)],
)
def test_nothing_of_ours_is_installed_where_it_is_not_wanted(
    host: str, setting: str, code: int, tmp_path: Path
) -> None:
    """With `handle_sigterm: false` the signal is the host's alone; one that the host ignores stays
    ignored without it.
    """
    target = tmp_path / "results.jsonl"
    finished = run_program(PLAIN, host, setting, "slow", str(target), "5")
    assert finished.lines("ours") == ["False"]
    assert (finished.code, finished.stderr) == (code, "")
    assert host != "none" or finished.exit_s <= margin_s(), (
        "the default action takes no time of ours"
    )
    assert host != "ignores" or ("went_on" in finished.stdout and saved_once(target) == 5)


def test_what_cannot_be_delivered_in_time_is_counted(receiver: Receiver, promise: Recorder) -> None:
    """With a judge that hangs the process ends in time, and its last metrics say that each call was
    dropped.
    """
    finished = run_program(PLAIN, "none", "default", "hangs", receiver.endpoint, str(CALLS))
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
    finished = run_program(PLAIN, "busy", "default", "slow", "/dev/null", "0")
    assert finished.code == 3, finished.stderr
    # that it samples less under such a load it may say
    assert "Traceback" not in finished.stderr, finished.stderr
    counted, made = map(int, finished.lines("outcomes")[0].split())
    assert made >= 200
    assert made - 1 <= counted <= made


ENDS = """
    import asyncio, multiprocessing, os, signal, sys, threading, time
    how, target = sys.argv[1], sys.argv[2]
    if how != "decorated only":
        from agenteval_otel import configure
    from agenteval_otel import annotate, monitor, Settings
    from agenteval_otel.storage import JsonFileStorageProvider

    async def slow(value):
        await asyncio.sleep(0.2)
        return True

    async def hangs(value):
        await asyncio.Event().wait()

    evaluator, storage = (hangs if how == "second" else slow), JsonFileStorageProvider(path=target)
    settings = {"evaluators": [evaluator], "storage": [storage], "sample_rate": 1.0, "shutdown_timeout_s": 15.0}

    def configured():
        configure(**settings)

    def word():
        handler = signal.getsignal(signal.SIGTERM)
        return {signal.SIG_DFL: "default", None: "none"}.get(handler, getattr(handler, "__module__", "?"))

    if how == "other thread":
        thread = threading.Thread(target=configured)
        thread.start()
        thread.join()
    elif how != "decorated only":
        configured()
    print("configured", word(), flush=True)

    if how == "decorated only":
        @monitor(evaluators=[slow], storage=[storage], sample_rate=1.0)
        def answer(question):
            annotate(session_id=question)
            return "an answer to " + question
    else:
        @monitor
        def answer(question):
            annotate(session_id=question)
            return "an answer to " + question
    print("decorated", word(), flush=True)

    def work(prefix):
        for number in range(100):
            answer(f"{prefix}-{number}")

    def ended():
        print("main_ended", time.monotonic(), flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(60)

    def child(answers):
        print("child", word(), flush=True)
        if answers:
            work("child")
            print("child_answered", word(), flush=True)
        ended()

    if how == "child":
        for answers in (True, False):
            process = multiprocessing.get_context("fork").Process(target=child, args=(answers,))
            process.start()
            process.join()
            print("child_code", process.exitcode, flush=True)
        sys.exit(0)
    work("main")
    print("answered", word(), flush=True)
    if how == "reset":
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        answer("afterwards")
        print("afterwards", word(), flush=True)
    if how == "second":
        first, pid = time.monotonic(), os.getpid()
        threading.Timer(0.5, os.kill, (pid, signal.SIGTERM)).start()
    ended()
"""
OURS = "agenteval_otel.engine.pipeline.exit"


@pytest.mark.parametrize(
    ("how", "configured", "decorated", "answered", "delivered"),
    [
        ("plain", OURS, OURS, OURS, 100),
        ("decorated only", "default", "default", OURS, 100),
        ("other thread", "default", "default", OURS, 100),
        ("reset", OURS, OURS, OURS, 0),
    ],
)
def test_the_handler_is_there_from_when_it_is_needed(
    how: str, configured: str, decorated: str, answered: str, delivered: int, tmp_path: Path,
    promise: Recorder,
) -> None:  # fmt: skip
    """`configure` on the main thread installs it, else the first answer that ends there; a
    decoration alone does not, and a host that takes it away has its way.
    """
    target = tmp_path / "results.jsonl"
    finished = run_program(ENDS, how, str(target))
    assert finished.code == -signal.SIGTERM, finished
    # Nothing is configured where it is only decorated: that results go to no telemetry is said.
    assert finished.stderr.count("\n") == (how == "decorated only"), finished.stderr
    words = [finished.lines(word) for word in ("configured", "decorated", "answered")]
    assert words == [[configured], [decorated], [answered]]
    assert finished.lines("afterwards") == (["default"] if how == "reset" else [])
    if how == "reset":
        assert saved_once(target) < 100
        return
    assert saved_once(target) == delivered
    promise("D1", figure=f"no handler of the host's, {how}: {saved_once(target)} of 100 delivered")


def test_a_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    """While what is pending is delivered, within 15 s here, another SIGTERM is the last."""
    finished = run_program(ENDS, "second", str(tmp_path / "results.jsonl"))
    assert (finished.code, finished.stderr) == (-signal.SIGTERM, ""), finished
    assert 0.5 <= finished.exit_s < 10


def test_a_forked_child_decides_anew(tmp_path: Path, promise: Recorder) -> None:
    """A child that answers delivers at SIGTERM as its parent would; one that does not has the
    handler from before.
    """
    target = tmp_path / "results.jsonl"
    finished = run_program(ENDS, "child", str(target))
    assert (finished.code, finished.stderr) == (0, ""), finished
    assert finished.lines("child") == ["default", "default"]
    assert finished.lines("child_answered") == [OURS]
    assert finished.lines("child_code") == [str(int(-signal.SIGTERM))] * 2
    assert saved_once(target) == 100
    promise("D1", figure="forked child: 100 of 100 delivered; one without answers has no handler")


APPLICATION = """
    import asyncio, sys
    from agenteval_otel import annotate, configure, flush, monitor
    from agenteval_otel.storage import JsonFileStorageProvider

    async def slow(value):
        await asyncio.sleep(0.3)
        return True

    configure(evaluators=[slow], storage=[JsonFileStorageProvider(path={target!r})], sample_rate=1.0,
              handle_sigterm={is_wanted!r})

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
            if not {is_wanted!r}:
                await asyncio.to_thread(flush, 2.0)
            await send({{"type": "lifespan.shutdown.complete"}})
            return
        body = answer(scope["path"]).encode()
        await send({{"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]}})
        await send({{"type": "http.response.body", "body": body}})
"""


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


@pytest.mark.parametrize("is_wanted", [True, False])
@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_ends_its_own_way_and_everything_is_delivered(
    kind: str, is_wanted: bool, tmp_path: Path, promise: Recorder
) -> None:
    target, requests = tmp_path / "results.jsonl", 40
    source = textwrap.dedent(APPLICATION).format(target=str(target), is_wanted=is_wanted)
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
    how = "default" if is_wanted else "handle_sigterm: false, flush() at its end"
    promise(
        "D1",
        figure=f"{kind}, {how}: {saved_once(target)} of {requests} delivered, ended in {took_s:.1f} s",
    )
    assert saved_once(target) == requests
    assert took_s <= EXIT_TIMEOUT_S + 1.0 + margin_s()
