"""``agenteval-otel demo``, run whole: in this process, in one of its own, on a terminal, into a Collector."""

from __future__ import annotations

import asyncio
import io
import json
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
from agenteval_otel.cli.demo import extent
from agenteval_otel.cli.demo.agent import Agent
from agenteval_otel.cli.demo.scores import Scores, demo_criteria, demo_evaluators
from agenteval_otel.cli.demo.screen import Delivery, Run, print_summary, render
from agenteval_otel.cli.demo.traffic import Turn, plan_turns, recorded_turns
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


def run_demo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
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
        assert re.search(rf"^  {criterion} +\d+ % \(\d+", captured.out, re.MULTILINE)
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


GOOD = '{"prompt": "Where is my parcel?", "response": "Your parcel comes tomorrow; please reply if not."}\n'
VAGUE = '{"prompt": "Where is my parcel?", "response": "Thanks, we are looking into things like this."}\n'


def test_a_recording_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every recorded turn is a call and is evaluated."""
    file = tmp_path / "recorded.jsonl"
    file.write_text(GOOD * 80)
    assert main(["demo", "--traffic", str(file)]) == 0
    shown = capsys.readouterr().out
    assert outcomes(shown) == {"calls": 80, "evaluated": 80}
    assert "No quality drop found" in shown


def test_a_drop_in_a_recording_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A recording whose second half is vague breaches an objective; reasons are shown, content is not."""
    file = tmp_path / "recorded.jsonl"
    file.write_text(GOOD * 60 + VAGUE * 60)
    assert main(["demo", "--traffic", str(file), "--calls", "110"]) == 0
    shown = capsys.readouterr().out
    assert outcomes(shown)["calls"] == 110
    assert "Quality dropped: 2 objectives breached" in shown
    breach = re.search(r"names_the_topic +1?\d\d % .* → \d\d % \(.*\)  below 85 % after (\d+) scores", shown)
    assert breach
    assert 60 < int(breach[1]) <= 90
    assert re.search(r"why: topic_missing \d+ of the last \d+", shown)
    assert "parcel" not in shown


@pytest.mark.shared
def test_the_airline_conversations_are_replayed(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Real conversations with tools, turn by turn, as fast as the queue takes them; none is dropped."""
    assert main(["demo", "--traffic", str(shared / "data" / "tau_airline_sample.jsonl")]) == 0
    counted = outcomes(capsys.readouterr().out)
    assert counted["calls"] == counted["evaluated"] > 500
    turns = list(recorded_turns(str(shared / "data" / "tau_airline_sample.jsonl")))
    calls = [call for turn in turns for call in turn.tool_calls]
    assert all(turn.messages[-1]["role"] == "user" for turn in turns)
    assert len(calls) == 442
    assert all(isinstance(call["result"], str) for call in calls)


def test_a_conversation_is_split_into_turns(tmp_path: Path) -> None:
    """Each message of the user gets the agent's last text and the tool calls before it, with their results."""
    call = {"id": "a", "type": "function", "function": {"name": "lookup", "arguments": '{"order": 4711}'}}
    messages = [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "name": "lookup", "content": "in transit"},
        {"role": "assistant", "content": "On its way."},
        {"role": "user", "content": "Thanks"}, {"role": "user", "content": "And when?"},
        {"role": "assistant", "content": [{"type": "text", "text": "Tomo"}, {"type": "text", "text": "rrow."}]},
        {"role": "user", "content": "Bye"},
    ]  # fmt: skip
    file = tmp_path / "recorded.jsonl"
    file.write_text(json.dumps({"id": "c-1", "messages": messages}) + '\n\n{"prompt": "Hi", "response": "Hello"}\n')
    assert list(recorded_turns(str(file))) == [
        Turn("c-1", messages[:2], "On its way.", [{**call, "result": "in transit"}]),
        Turn("c-1", messages[:7], "Tomorrow.", []),
        Turn("line-3", [{"role": "user", "content": "Hi"}], "Hello", []),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--traffic", "missing.jsonl"], "missing.jsonl: cannot be read: No such file"),
        (["--traffic", "empty.jsonl"], "no conversation in 'empty.jsonl'"),
        (["--traffic", "wrong.jsonl"], "wrong.jsonl:1: not JSON"),
        (["--traffic", "roles.jsonl"], "roles.jsonl:1: messages: expected a list of objects with a role"),
        (["--traffic", "silent.jsonl"], "silent.jsonl:1: messages: no message of the assistant"),
        (["--traffic", "fields.jsonl"], "fields.jsonl:1: response: is missing"),
        (["--traffic", "any.jsonl", "--seconds", "4"], "--seconds: a replay runs as fast as it can"),
        (["--otlp-endpoint", "localhost:4317"], "found 'localhost:4317', expected http://HOST:PORT"),
        (["--otlp-endpoint", "http://x:99999"], "expected http://HOST:PORT"),
    ],
)
def test_wrong_files_and_endpoints_are_refused(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The problem is on standard error before anything runs, with exit code 2."""
    monkeypatch.chdir(tmp_path)
    for name, content in (
        ("empty", ""), ("wrong", "nope"), ("roles", '{"messages": [7]}'), ("fields", '{"prompt": "x"}'),
        ("silent", '{"messages": [{"role": "user"}]}'),
    ):  # fmt: skip
        Path(f"{name}.jsonl").write_text(content)
    assert main(["demo", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_a_collector_that_is_down_breaks_nothing() -> None:
    """The run ends with its scores, says that nobody listens, does not wait for it, and does not pass for a success."""
    with refused_port() as port:
        began = time.monotonic()
        ended = run_demo("--calls", "20", "--seconds", "0.5", "--otlp-endpoint", f"http://127.0.0.1:{port}")
        took_s = time.monotonic() - began
    assert ended.returncode == 1
    assert outcomes(ended.stdout)["calls"] == 20
    assert f"Not everything reached http://127.0.0.1:{port}" in ended.stdout
    assert "Is the Collector up, and is the port right" in ended.stdout
    assert ended.stderr == ""
    assert took_s < 30


def test_a_collector_that_never_answers_breaks_nothing() -> None:
    """An endpoint that takes connections and says nothing is given up on, too, and told apart from nobody."""
    with black_hole() as hole:
        ended = run_demo("--calls", "20", "--seconds", "0.5", "--otlp-endpoint", hole.endpoint)
    assert ended.returncode == 1
    assert "Not everything reached" in ended.stdout
    assert ended.stderr == ""


def test_telemetry_switched_off_is_told() -> None:
    """Where the SDK is disabled nothing is sent, and that is said."""
    ended = run_demo("--calls", "10", "--otlp-endpoint", "http://127.0.0.1:4317", OTEL_SDK_DISABLED="true")
    assert ended.returncode == 0
    assert "Nothing left this process: OTEL_SDK_DISABLED is true" in ended.stdout


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
    prose = [line for line in plain.splitlines() if not re.search("agenteval.otel|async def", line)]
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
    ended = run_demo("--calls", "30", "--seconds", "0.5", PYTHONIOENCODING="ascii")
    assert ended.returncode == 0
    assert ended.stdout.isascii()
    assert re.search(r"ok: +adds up", ended.stdout)


@pytest.fixture(scope="module")
def over() -> Iterator[Run]:
    """A run that is over: 600 calls in half a second, all evaluated."""
    scores = Scores()
    pipeline = Pipeline(
        sampler=RatioSampler(), evaluators=demo_evaluators(), criteria=demo_criteria(), storage=(scores,),
        objectives=scores.objectives,
    )  # fmt: skip
    run = Run(pipeline, scores, "everything", total=600, seconds=0.5, destination="to nowhere", release=2)
    agent = Agent("support", pipeline, pace=0.0)

    async def serve() -> None:
        for turn in plan_turns(calls=600, seconds=0.5, seed=7):
            await agent.serve(turn)

    asyncio.run(serve())
    run.calls, run.ended = 600, time.monotonic()
    assert pipeline.flush(30.0)
    yield run
    pipeline.shutdown(5.0)


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
def test_no_width_breaks_the_screens(over: Run, columns: int) -> None:
    """View and summary fit into every width; narrow ones lose columns of the table, not the pass rates."""
    file = io.StringIO()
    console = Console(file=file, width=columns, force_terminal=False)
    console.print(render(over, console))
    print_summary(over, console, Delivery(), evaluated=True, planted=True)
    shown = file.getvalue()
    # What is to be copied is never broken.
    prose = [line for line in shown.splitlines() if not re.search("agenteval.otel|async def", line)]
    assert max(len(line.rstrip()) for line in prose) <= columns
    for criterion in CRITERIA:
        assert len(re.findall(rf"^ *{criterion} +\d+ %", shown, re.MULTILINE)) >= 2
    assert columns < 60 or shown.count("trend") == 2


def test_the_summary_tells_where_to_look(over: Run) -> None:
    """After a run into a Collector: a query, the events; and what dropped, and why."""
    file = io.StringIO()
    delivery = Delivery("http://localhost:4317", "shop", complete=True, spans=True)
    print_summary(over, Console(file=file, width=80), delivery, evaluated=True, planted=True)
    shown = file.getvalue()
    assert "agenteval_evaluation_weight_total" in shown
    assert "gen_ai.evaluation.result" in shown
    assert re.search(r"Quality dropped: \d objectives breached \(prompt v2", shown)
    assert re.search(r"next_step +\d+ % \(\d+.\d+\) . \d+ % \(\d+.\d+\)  below 80 % at \d", shown)
    assert re.search(r"why: no_next_step \d+ of the last \d+", shown)


@pytest.mark.backend
@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_collector_gets_the_application_and_its_scores(collector: Collector, protocol: str) -> None:
    """The trace is that of an application: request, agent, tools, model; the scores hang under the agent's span."""
    service = f"demo-{protocol.partition('/')[0]}"
    endpoint = collector.grpc_endpoint if protocol == "grpc" else collector.http_endpoint
    ended = run_demo(
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
    ended = run_demo("--calls", "60", "--seconds", "1", "--otlp-endpoint", f"http://{jaeger.otlp_endpoint}")
    assert ended.returncode == 0
    assert "The spans did; events or metrics did not." in ended.stdout
    told = re.search(r"^    ([0-9a-f]{32})$", ended.stdout, re.MULTILINE)
    assert told
    trace = jaeger.wait_for(lambda seen: seen.trace(told[1]))
    assert {"POST /support", "invoke_agent support", "evaluation support"} <= {span.name for span in trace.spans}
    assert trace.orphans() == []


def test_the_standard_variables_name_an_endpoint() -> None:
    """Without the option, OTEL_EXPORTER_OTLP_* says where telemetry goes."""
    with refused_port() as port:
        address = f"http://127.0.0.1:{port}"
        ended = run_demo("--calls", "5", "--seconds", "0.5", OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=address)
    assert f"Not everything reached {address}" in ended.stdout


def test_lifelike_traffic_has_everything() -> None:
    """Exactly so many turns in order of time: streams, slow answers, failing tools, conversations, two prompts."""
    turns = plan_turns(calls=600, seconds=20, seed=7)
    assert len(turns) == 600
    assert turns == plan_turns(calls=600, seconds=20, seed=7) != plan_turns(calls=600, seconds=20, seed=8)
    times = [turn.at_s for turn in turns]
    assert times == sorted(times)
    assert all((turn.release == 2) == (turn.at_s >= 10) for turn in turns)
    assert {turn.kind for turn in turns} >= {"good", "vague", "long", "refused", "empty", "failed", "cut"}
    assert max(len(turn.messages) for turn in turns) == 8
    assert all(any(getattr(turn, trait) for turn in turns) for trait in ("streamed", "slow"))
    assert any("error" in call["result"] for turn in turns for call in turn.tool_calls)


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
    """Calls and seconds follow from each other: thirty calls a second, twenty seconds."""
    assert extent(None, None) == (600, 20.0)
    assert extent(90, None) == (90, 3.0)
    assert extent(None, 2.0) == (60, 2.0)
    assert extent(7, 2.0) == (7, 2.0)
    assert extent(1, None) == (1, 0.5)
