"""``agenteval-otel demo``, run whole: in this process, in one of its own, on a terminal, into a Collector."""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import pytest
from rich.console import Console

from agenteval_otel.cli import main
from agenteval_otel.cli.demo.agent import SupportAgent
from agenteval_otel.cli.demo.criteria import demo_evaluators
from agenteval_otel.cli.demo.guidance import Delivery
from agenteval_otel.cli.demo.ledger import Ledger
from agenteval_otel.cli.demo.outlet import Outlet, check_endpoint
from agenteval_otel.cli.demo.script import plan_turns
from agenteval_otel.cli.demo.state import RunState
from agenteval_otel.cli.demo.summary import print_summary
from agenteval_otel.cli.demo.traffic import LiveTraffic
from agenteval_otel.cli.demo.view import render
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.pipeline import Pipeline
from agenteval_otel.sampling import RatioSampler
from tests.backends.collector import Collector
from tests.backends.faults import black_hole, refused_port
from tests.backends.jaeger import Jaeger

CRITERIA = ("response_health", "short_enough", "courtesy", "names_the_topic", "next_step", "tools_worked")
ADDS_UP = re.compile(r"([\d,]+) calls = ((?:[\d,]+ \w+(?: \+ )?)+) . adds up")


@pytest.fixture(autouse=True)
def _plain_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No endpoint and no terminal but those that a test gives."""
    for name in list(os.environ):
        if name.startswith("OTEL_") or name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "80")


def outcomes(shown: str) -> dict[str, int]:
    """The accounting line, taken apart; its parts add up to its calls."""
    found = ADDS_UP.search(shown)
    assert found, shown
    parts = {name: int(count.replace(",", "")) for count, name in (part.split() for part in found[2].split(" + "))}
    calls = int(found[1].replace(",", ""))
    assert sum(parts.values()) == calls
    return {"calls": calls, **parts}


def spoken(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The demo in a process of its own, without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "agenteval_otel", "demo", *arguments],
        capture_output=True, text=True, timeout=90, env={**os.environ, **environment}, check=False,
    )  # fmt: skip


def test_a_short_run_accounts_for_every_call(capsys: pytest.CaptureFixture[str]) -> None:
    """Exactly the calls that were asked for, outcomes that add up to them, every criterion, the next steps, code 0."""
    assert main(["demo", "--calls", "60", "--seconds", "1"]) == 0
    captured = capsys.readouterr()
    counted = outcomes(captured.out)
    assert counted["calls"] == 60
    assert 0 < counted["evaluated"] < 60
    assert counted["evaluated"] + counted["not_sampled"] == 60
    for criterion in CRITERIA:
        assert re.search(rf"^  {criterion} +\d+ % +\d+", captured.out, re.MULTILINE)
    assert "at p = 0.5" in captured.out
    assert "Nothing left this process" in captured.out
    assert "agenteval-otel check agenteval.yaml" in captured.out
    assert captured.err == ""


def test_progress_is_told_line_by_line_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal there are plain lines and no control sequences, and no prompt or answer among them."""
    assert main(["demo", "--seconds", "1", "--no-live", "--no-drop"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^ +0\.\d s  \d+ calls, \d+ evaluated, queue \d+; prompt v1$", shown, re.MULTILINE)
    assert "\x1b" not in shown
    assert outcomes(shown)["calls"] == 30
    for content in ("order #", "refund", "Thanks for waiting"):
        assert content not in shown


def test_a_recording_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every recorded turn is a call and all are evaluated; lines that are none are told and do no harm."""
    file = tmp_path / "said.jsonl"
    good = '{"prompt": "Where is my parcel?", "response": "Your parcel comes tomorrow; please reply if not."}\n'
    file.write_text(good * 40 + "nope\n" + good * 40 + '{"messages": []}\n')
    assert main(["demo", "--traffic", str(file)]) == 0
    shown = capsys.readouterr().out
    assert outcomes(shown) == {"calls": 80, "evaluated": 80}
    assert "Replayed 80 conversations of said.jsonl (82 lines)" in shown
    assert "2 lines left out" in shown
    assert "line 41: not JSON" in shown
    assert "line 82: no message of the assistant" in shown
    assert "No drop found" in shown


def test_a_drop_in_a_recording_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A recording whose second half is vague is shown to have dropped, with reasons and without content."""
    file = tmp_path / "said.jsonl"
    good = '{"prompt": "Where is my parcel?", "response": "Your parcel comes tomorrow; please reply if not."}\n'
    vague = '{"prompt": "Where is my parcel?", "response": "Thanks, we are looking into things like this."}\n'
    file.write_text(good * 60 + vague * 60)
    assert main(["demo", "--traffic", str(file), "--calls", "110"]) == 0
    shown = capsys.readouterr().out
    assert outcomes(shown)["calls"] == 110
    assert "Quality dropped after about" in shown
    assert re.search(r"names_the_topic +(100|9\d) % \(\d+.(100|9\d)\) . \d % \(0.1?\d\) +p < 0.0001", shown)
    assert re.search(r"why: topic_missing (4|5)\d of (4|5)\d", shown)
    assert "parcel" not in shown


@pytest.mark.shared
def test_the_airline_conversations_are_replayed(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Real conversations with tools, turn by turn, as fast as the queue takes them; none is dropped."""
    assert main(["demo", "--traffic", str(shared / "data" / "tau_airline_sample.jsonl")]) == 0
    counted = outcomes(capsys.readouterr().out)
    assert counted["calls"] == counted["evaluated"] > 500


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--traffic", "missing.jsonl"], "cannot read 'missing.jsonl'"),
        (["--otlp-endpoint", "localhost:4317"], "found 'localhost:4317', expected http://HOST:PORT"),
        (["--otlp-endpoint", "http://x:99999"], "expected http://HOST:PORT"),
    ],
)
def test_what_cannot_be_used_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A file or an endpoint that is none is told on standard error before anything runs, with exit code 2."""
    assert main(["demo", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_a_collector_that_is_down_breaks_nothing() -> None:
    """The run ends with its scores, says that nobody listens, does not wait for it, and does not pass for a success."""
    with refused_port() as port:
        began = time.monotonic()
        ended = spoken("--calls", "20", "--seconds", "0.5", "--otlp-endpoint", f"http://127.0.0.1:{port}")
        took_s = time.monotonic() - began
    assert ended.returncode == 1
    assert outcomes(ended.stdout)["calls"] == 20
    assert f"Not everything reached http://127.0.0.1:{port}" in ended.stdout
    assert "Nobody listens there." in ended.stdout
    assert ended.stderr == ""
    assert took_s < 30


def test_a_collector_that_never_answers_breaks_nothing() -> None:
    """An endpoint that takes connections and says nothing is given up on, too, and told apart from nobody."""
    with black_hole() as hole:
        ended = spoken("--calls", "20", "--seconds", "0.5", "--otlp-endpoint", hole.endpoint)
    assert ended.returncode == 1
    assert "Something listens there." in ended.stdout
    assert ended.stderr == ""


def test_a_replay_has_no_length(tmp_path: Path) -> None:
    """How long a replay lasts is not to be chosen, and that is said instead of passed over."""
    ended = spoken("--traffic", str(tmp_path / "any.jsonl"), "--seconds", "4")
    assert ended.returncode == 2
    assert "--seconds: a replay takes as long as it takes" in ended.stderr


def test_telemetry_switched_off_is_told() -> None:
    """Where the SDK is disabled nothing is sent, and that is said."""
    ended = spoken("--calls", "10", "--otlp-endpoint", "http://127.0.0.1:4317", OTEL_SDK_DISABLED="true")
    assert ended.returncode == 0
    assert "Nothing was sent: OTEL_SDK_DISABLED is true" in ended.stdout


def test_ctrl_c_ends_early_with_the_summary() -> None:
    """An interrupt ends the traffic, not the accounting: the summary of what was seen, and exit code 130."""
    command = [sys.executable, "-u", "-m", "agenteval_otel", "demo", "--seconds", "300", "--calls", "9000", "--no-live"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        first = running.stdout.readline()
        running.send_signal(signal.SIGINT)
        shown, errors = running.communicate(timeout=60)
    assert "calls" in first
    assert running.returncode == 130
    assert "ended early by Ctrl-C" in shown
    assert 0 < outcomes(shown)["calls"] < 9000
    assert errors == ""


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_live_view_on_a_terminal(columns: int) -> None:
    """A terminal gets its other screen, calmly redrawn and given back; then the summary, no line wider than it is."""
    shown = on_terminal(columns, "--seconds", "2", NO_COLOR="1")
    live, _, summary = shown.partition("\x1b[?1049l")
    assert "\x1b[?1049h" in live
    assert 2 <= live.count("\x1b[H") <= 2 + 8 * 3
    assert "Sampling" in live
    assert not re.search(r"\x1b\[[\d;]*3[1-7]m", shown)  # no colours
    plain = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", summary)
    assert outcomes(plain)["calls"] == 60
    prose = [line for line in plain.splitlines() if "agenteval-otel demo --" not in line]
    assert max(len(line.rstrip()) for line in prose) <= columns


def on_terminal(columns: int, *arguments: str, **environment: str) -> str:
    """What a pseudo-terminal of so many columns is shown."""
    leader, follower = pty.openpty()
    ioctl(follower, TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    surroundings = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        [sys.executable, "-m", "agenteval_otel", "demo", *arguments],
        stdin=follower, stdout=follower, stderr=follower, env={**surroundings, "TERM": "xterm-256color", **environment},
    ) as running:  # fmt: skip
        os.close(follower)
        shown = b"".join(_read(leader))
    os.close(leader)
    assert running.returncode == 0, shown.decode(errors="replace")
    return shown.decode()


def _read(leader: int) -> Iterator[bytes]:
    while select.select([leader], [], [], 60)[0]:
        try:
            read = os.read(leader, 65536)
        except OSError:  # the other side is closed
            return
        if not read:
            return
        yield read


def test_a_terminal_without_signs_gets_letters() -> None:
    """Where the encoding knows no dashes and bars, plain characters stand for them."""
    ended = spoken("--calls", "30", "--seconds", "0.5", PYTHONIOENCODING="ascii")
    assert ended.returncode == 0
    assert ended.stdout.isascii()
    assert re.search(r"ok: +adds up", ended.stdout)


@pytest.fixture(scope="module")
def over() -> Iterator[RunState]:
    """A run that is over: 360 calls in half a second, all evaluated."""
    ledger = Ledger(time.time_ns())
    pipeline = Pipeline(sampler=RatioSampler(), evaluators=demo_evaluators(max_characters=320), storage=(ledger,))

    async def run() -> RunState:
        turns = plan_turns(calls=360, seconds=0.5, seed=7)
        traffic = LiveTraffic(SupportAgent(pipeline, None, pace=0.0), turns, 0.5)
        state = RunState(pipeline, ledger, traffic, seconds=0.5, sampling="everything", outlet="to nowhere")
        state.begin()
        await traffic.run()
        state.end()
        return state

    state = asyncio.run(run())
    assert pipeline.dispatcher.flush(30.0)
    yield state
    pipeline.shutdown(5.0)


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
def test_no_width_breaks_the_screens(over: RunState, columns: int) -> None:
    """View and summary fit into every width; narrow ones lose columns of the table, not the pass rates."""
    file = io.StringIO()
    console = Console(file=file, width=columns, force_terminal=False)
    console.print(render(over, console))
    nowhere = Delivery(None, complete=False, listens=False)
    print_summary(over, console, delivery=nowhere, recording=None, evaluated=True, planted=True)
    shown = file.getvalue()
    # What is to be copied is never broken.
    prose = [line for line in shown.splitlines() if not re.search("agenteval-otel|async def|docs/", line)]
    assert max(len(line.rstrip()) for line in prose) <= columns
    for criterion in CRITERIA:
        assert len(re.findall(rf"^ *{criterion} +\d+ %", shown, re.MULTILINE)) >= 2
    assert columns < 60 or shown.count("trend") == 2


def test_the_summary_tells_where_to_look(over: RunState) -> None:
    """After a run into a Collector: the trace of a failing answer, a query, the events; and what fell and why."""
    file = io.StringIO()
    delivery = Delivery("http://localhost:4317", complete=True, listens=True)
    print_summary(over, Console(file=file, width=80), delivery=delivery, recording=None, evaluated=True, planted=True)
    shown = file.getvalue()
    assert re.search(r"^    [0-9a-f]{32}$", shown, re.MULTILINE)
    assert "agenteval_evaluation_weight_total" in shown
    assert "gen_ai.evaluation.result" in shown
    assert "Quality dropped at about" in shown
    assert re.search(r"next_step +\d+ % \(\d+.\d+\) . \d+ % \(\d+.\d+\)  p ", shown)
    assert re.search(r"why: no_next_step \d+ of \d+ \(before: \d+ of \d+\)", shown)


@pytest.mark.backend
@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_collector_gets_the_application_and_its_scores(collector: Collector, protocol: str) -> None:
    """The trace is that of an application: request, agent, tools, model; the scores hang under the agent's span."""
    service = f"demo-{protocol.partition('/')[0]}"
    endpoint = collector.grpc_endpoint if protocol == "grpc" else collector.http_endpoint
    ended = spoken(
        "--calls", "60", "--seconds", "1", "--otlp-endpoint", endpoint,
        OTEL_SERVICE_NAME=service, OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
    )  # fmt: skip
    assert ended.returncode == 0
    assert f"Sent to {endpoint} as service {service}" in ended.stdout
    counted = outcomes(ended.stdout)
    spans = collector.wait_for(
        lambda seen: [found for found in [seen.spans(service)]
                      if sum(span.name == "evaluation support" for span in found) == counted["evaluated"]]
    )[0]  # fmt: skip
    by_id = {span.span_id: span for span in spans}

    def parents(name: str) -> set[str]:
        return {by_id[span.parent_span_id].name for span in spans if span.name.startswith(name)}

    assert parents("invoke_agent support") == {"POST /support"}
    assert parents("execute_tool") == parents("chat") == parents("evaluation") == {"invoke_agent support"}
    told = re.search(r"^    ([0-9a-f]{32})$", ended.stdout, re.MULTILINE)
    assert told
    assert told[1] in {span.trace_id for span in spans}
    assert collector.wait_for(lambda seen: len(seen.logs(service)) >= 4 * counted["evaluated"])
    assert collector.wait_for(lambda seen: seen.metric("agenteval.evaluation.weight", service))


@pytest.mark.backend
def test_jaeger_shows_the_trace_that_the_summary_names(jaeger: Jaeger) -> None:
    """Jaeger by itself takes spans and no scores' events: the summary says so, and the trace it names is whole."""
    ended = spoken("--calls", "60", "--seconds", "1", "--otlp-endpoint", f"http://{jaeger.otlp_endpoint}")
    assert ended.returncode == 0
    assert "The spans did; events or metrics did not." in ended.stdout
    told = re.search(r"^    ([0-9a-f]{32})$", ended.stdout, re.MULTILINE)
    assert told
    trace = jaeger.wait_for(lambda seen: seen.trace(told[1]))
    assert {"POST /support", "invoke_agent support", "evaluation support"} <= {span.name for span in trace.spans}
    assert trace.orphans() == []


def test_an_endpoint_of_the_surroundings_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the option the standard variables say where to; without either nothing is sent."""
    check_endpoint(None)
    assert Outlet(None).address is None
    with refused_port() as port:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"127.0.0.1:{port}")
        outlet = Outlet(None)
        try:
            assert outlet.address == f"127.0.0.1:{port}"
            assert not outlet.listens()
            assert repr(outlet) == f"<Outlet 127.0.0.1:{port}>"
        finally:
            outlet.close(5.0)
    with pytest.raises(ConfigurationError, match="expected http://HOST:PORT"):
        check_endpoint("grpc://localhost:4317")


@pytest.mark.parametrize(
    "arguments", [["--seconds", "0"], ["--seconds", "nan"], ["--seconds", "1e9"], ["--calls", "-1"]]
)
def test_wrong_numbers_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers out of range are wrong use: exit code 2."""
    with pytest.raises(SystemExit) as caught:
        main(["demo", *arguments])
    assert caught.value.code == 2
    assert "must be" in capsys.readouterr().err


def test_how_many_calls_and_seconds() -> None:
    """What is not given follows from what is: thirty calls a second, twenty seconds."""
    from agenteval_otel.cli.demo.session import _extent

    def extent(calls: int | None, seconds: float | None) -> tuple[int, float]:
        return _extent(argparse.Namespace(calls=calls, seconds=seconds))

    assert extent(None, None) == (600, 20.0)
    assert extent(90, None) == (90, 3.0)
    assert extent(None, 2.0) == (60, 2.0)
    assert extent(7, 2.0) == (7, 2.0)
    assert extent(1, None) == (1, 0.5)
