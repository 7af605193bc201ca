"""``agenteval-otel demo`` as a whole: in this process, in its own process, on a terminal, into a
Collector.
"""

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
from dataclasses import replace
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import pytest
from rich.console import Console

from agenteval_otel.cli.demo.agent import Agent, DemoTurn, plan_turns, recorded_turns
from agenteval_otel.cli.demo.scores import Scores, demo_criteria, demo_evaluators
from agenteval_otel.cli.demo.screen import DemoDelivery, DemoRun, print_summary, render
from agenteval_otel.config.capabilities import of_every_pipeline
from agenteval_otel.engine.objectives import ObjectiveCrossing
from agenteval_otel.offline.comparison import ComparedSource
from agenteval_otel.sampling import RatioSampler
from tests.backends.collector import Collector
from tests.backends.faults import black_hole, refused_port
from tests.backends.jaeger import Jaeger
from tests.cli.conftest import CommandLine
from tests.pipelines import pipeline_with

CRITERIA = (
    "response_health",
    "short_enough",
    "courtesy",
    "names_the_topic",
    "next_step",
    "tools_worked",
)
# these lines are never broken
COPIED = re.compile("agenteval.otel|agenteval_responses|localhost:16686|export OTEL")
ADDS_UP = re.compile(r"([\d,]+) calls = ((?:[\d,]+ \w+(?: \+ )?)+) . adds up")


def outcomes(shown: str) -> dict[str, int]:
    """The parts of the accounting line, which add up to its calls."""
    match = ADDS_UP.search(shown)
    assert match, shown
    parts = {
        name: int(count.replace(",", ""))
        for count, name in (part.split() for part in match[2].split(" + "))
    }
    calls = int(match[1].replace(",", ""))
    assert sum(parts.values()) == calls
    return {"calls": calls, **parts}


def run_demo(arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The demo in a process of its own, without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "agenteval_otel", "demo", *arguments.split()],
        capture_output=True,
        text=True,
        timeout=90,
        env={**os.environ, **environment},
        check=False,
    )


def test_a_short_run_accounts_for_every_call(cli: CommandLine) -> None:
    """Lines of progress, then a summary with outcomes that add up, every criterion and the next
    steps; no content.
    """
    shown = cli("demo --calls 60 --seconds 1")
    assert re.search(
        r"^ +0\.\d s  \d+ calls, \d+ evaluated, queue \d+, prompt v1$", shown, re.MULTILINE
    )
    counts = outcomes(shown)
    assert counts["calls"] == 60
    assert 0 < counts["evaluated"] < 60
    assert counts["evaluated"] + counts["not_sampled"] == 60
    for criterion in CRITERIA:
        # Chance decides which calls are sampled: of fewer than 20 units no interval is shown.
        assert re.search(rf"^  {criterion} +\d+ % \((of )?\d+", shown, re.MULTILINE)
    for text in ("the rest at p = 0.50", "Nothing left this process", "agenteval-otel init"):
        assert text in shown
    for content in ("\x1b", "order #", "refund", "Thanks for waiting"):
        assert content not in shown
    assert cli.err == ""


GOOD = '{"prompt": "Where is my parcel?", "response": "Your parcel comes tomorrow; please reply if not."}\n'
VAGUE = '{"prompt": "Where is my parcel?", "response": "Thanks, we are looking into things like this."}\n'


def test_a_recording_is_replayed_and_its_drop_detected(cli: CommandLine) -> None:
    """Every turn is evaluated. A vague second half breaches an objective; reasons are shown,
    content is not.
    """
    cli.file("good.jsonl", GOOD * 80)
    shown = cli("demo --traffic good.jsonl")
    assert outcomes(shown) == {"calls": 80, "evaluated": 80}
    assert "No quality drop found" in shown
    cli.file("drop.jsonl", GOOD * 60 + VAGUE * 60)
    shown = cli("demo --traffic drop.jsonl --calls 110")
    assert outcomes(shown)["calls"] == 110
    assert "Quality dropped: 2 objectives breached" in shown
    breach = re.search(
        r"names_the_topic +1?\d\d % .* → \d\d % \(.*\)  below 85 % after (\d+) of 110", shown
    )
    assert breach
    assert 60 < int(breach[1]) <= 90
    assert re.search(r"why: topic_missing \d+ of the last \d+", shown)
    assert "parcel" not in shown


def test_a_recording_is_scored_by_settings(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the option or of AGENTEVAL_SETTINGS, by an agent's criteria and none of the demo's, with
    all facts.
    """
    cli.settings("""\
        agents:
          shop:
            evaluators: [{type: ExactMatch, criterion_name: right}, ResponseHealth]
            criteria: [{name: right, objective: 0.9}]
        """)
    cli("demo --settings settings.yaml", code=2)
    assert "--settings: only applies to --traffic" in cli.err
    line = '{"prompt": "1 + 1?", "response": "%s", "ground_truth": "2", "context": {"page": 7}}\n'
    cli.file("recorded.jsonl", line % 2 * 300 + line % 3 * 300)
    demo = "demo --traffic recorded.jsonl --agent shop"
    by_option = cli(f"{demo} --settings settings.yaml")
    monkeypatch.setenv("AGENTEVAL_SETTINGS", "settings.yaml")
    for shown in (by_option, cli(demo)):
        assert re.search(r"^  right +50 % \(46.54\) +600  90 % ✗", shown, re.MULTILINE)
        assert re.search(r"^  response_health +100 %", shown, re.MULTILINE)
        assert "short_enough" not in shown
        place = re.search(
            r"1 objective breached in 600 answers\n.* below 90 % after (\d+) of 600", shown
        )
        assert place
        assert 300 < int(place[1]) <= 330


def test_a_rate_lies_in_its_printed_interval(finished: DemoRun) -> None:
    """All three are rounded alike, also next to 0 and 1."""
    for rate, low, high, printed in (
        (0.002, 0.0004, 0.004, r"1 % \(1.1\)"),
        (0.998, 0.996, 0.9996, r"99 % \(99.99\)"),
    ):
        run = replace(finished, scores=Scores(demo_criteria()))
        run.scores.on_breach(
            ObjectiveCrossing(
                kind="breached",
                criterion="courtesy",
                objective=0.999,
                rate=rate,
                low=low,
                high=high,
                count=600,
                since_ns=1,
                at_ns=1,
            )
        )
        console = Console(file=io.StringIO(), width=100)
        console.print(render(run, console))
        shown = " ".join(console.file.getvalue().split())
        assert re.search(f"courtesy {printed} below", shown)


def test_ids_in_a_recording_may_be_numbers(cli: CommandLine) -> None:
    """Those of conversations, of tool calls and of their results, as a database exports them."""
    call = {"id": 7, "type": "function", "function": {"name": "lookup", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Where is my parcel?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": 7, "content": "in transit"},
        {"role": "assistant", "content": "Your parcel is on its way."},
    ]
    cli.file("recorded.jsonl", json.dumps({"id": 4711, "messages": messages}))
    shown = cli("demo --traffic recorded.jsonl")
    assert outcomes(shown) == {"calls": 1, "evaluated": 1}
    assert re.search(r"tools_worked +100 %", shown)


def test_a_conversation_is_split_into_turns(tmp_path: Path) -> None:
    """A turn ends with the agent's last text; its tool calls have their results."""
    call = {
        "id": "a",
        "type": "function",
        "function": {"name": "lookup", "arguments": '{"order": 4711}'},
    }
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "name": "lookup", "content": "in transit"},
        {"role": "assistant", "content": "On its way."},
        {"role": "user", "content": "Thanks"},
        {"role": "user", "content": "And when?"},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "Tomo"}, {"type": "text", "text": "rrow."}],
        },
        {"role": "user", "content": "Bye"},
    ]
    file = tmp_path / "recorded.jsonl"
    file.write_text(
        json.dumps({"id": "c-1", "messages": messages})
        + '\n\n{"prompt": "Hi", "response": "Hello"}\n'
    )
    assert list(recorded_turns(str(file))) == [
        DemoTurn("c-1", messages[:2], "On its way.", [{**call, "result": "in transit"}]),
        DemoTurn("c-1", messages[:7], "Tomo\nrrow.", []),
        DemoTurn("line-3", [{"role": "user", "content": "Hi"}], "Hello", []),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--traffic missing.jsonl", "missing.jsonl: cannot be read: No such file"),
        ("--traffic empty.jsonl", "no conversation in 'empty.jsonl'"),
        ("--traffic wrong.jsonl", "wrong.jsonl:1: not JSON"),
        (
            "--traffic roles.jsonl",
            "roles.jsonl:1: messages: expected a list of objects with a role",
        ),
        ("--traffic silent.jsonl", "silent.jsonl:1: messages: no message of the assistant"),
        ("--traffic fields.jsonl", "fields.jsonl:1: response: is missing"),
        ("--traffic any.jsonl --seconds 4", "--seconds: a replay runs as fast as it can"),
        ("--otlp-endpoint localhost:4317", "found 'localhost:4317', expected http://HOST:PORT"),
        ("--otlp-endpoint http://x:99999", "expected http://HOST:PORT"),
    ],
)
def test_wrong_files_and_endpoints_are_refused(
    options: str, message: str, cli: CommandLine
) -> None:
    """Nothing runs, and the problem is on standard error, with exit code 2."""
    for name, content in (
        ("empty", ""),
        ("wrong", "nope"),
        ("roles", '{"messages": [7]}'),
        ("fields", '{"prompt": "x"}'),
        ("silent", '{"messages": [{"role": "user"}]}'),
    ):
        cli.file(f"{name}.jsonl", content)
    assert cli(f"demo {options}", code=2) == ""
    assert message in cli.err


@pytest.mark.parametrize("kind", ["down", "silent"])
def test_a_collector_that_does_not_answer_breaks_nothing(kind: str) -> None:
    """The run ends with its scores, names the address, and is no success."""
    demo = "--calls 20 --seconds 0.5"
    with refused_port() as port, black_hole() as hole:
        if kind == "silent":
            address = hole.endpoint
            ended = run_demo(f"{demo} --otlp-endpoint {address}")
        else:
            address = f"http://127.0.0.1:{port}"
            ended = run_demo(demo, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=address)
    assert ended.returncode == 1
    assert outcomes(ended.stdout)["calls"] == 20
    assert f"Not everything reached {address}" in ended.stdout
    assert "Is the Collector up, and is the port right" in ended.stdout
    assert ended.stderr == ""


def test_ctrl_c_ends_early_with_the_summary() -> None:
    """An interrupt ends the traffic: summary and accounting follow, and the exit code is 130."""
    command = ["-u", "-m", "agenteval_otel", "demo", "--seconds", "300", "--calls", "9000"]
    with subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        first = running.stdout.readline()
        running.send_signal(signal.SIGINT)
        shown, errors = running.communicate(timeout=60)
    assert "calls" in first
    assert running.returncode == 130
    assert "ended early by Ctrl-C" in shown
    assert 0 < outcomes(shown)["calls"] < 9000
    assert errors == ""


def test_the_live_view_uses_the_alternate_screen() -> None:
    """The screen is redrawn a few times a second and given back; no line is wider than the
    terminal.
    """
    leader, follower = pty.openpty()
    ioctl(follower, TIOCSWINSZ, struct.pack("HHHH", 40, 70, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-m", "agenteval_otel", "demo", "--seconds", "2"],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"},
    ) as running:
        os.close(follower)
        shown = b"".join(_read(leader)).decode()
    os.close(leader)
    assert running.returncode == 0, shown
    live, _, summary = shown.partition("\x1b[?1049l")
    assert "\x1b[?1049h" in live
    assert 2 <= live.count("\x1b[H") <= 2 + 8 * 3
    assert "Sampling" in live
    assert not re.search(r"\x1b\[[\d;]*3[1-7]m", shown)  # no colours
    plain = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", summary)
    assert outcomes(plain)["calls"] == 60
    prose = [line for line in plain.splitlines() if not COPIED.search(line)]
    assert max(len(line.rstrip()) for line in prose) <= 70


def _read(leader: int) -> Iterator[bytes]:
    while select.select([leader], [], [], 60)[0]:
        try:
            read = os.read(leader, 65536)
        except OSError:  # the other side is closed
            return
        if not read:
            return
        yield read


@pytest.fixture(scope="module")
def finished() -> Iterator[DemoRun]:
    """A finished run: 600 calls in half a second, all evaluated."""
    scores = Scores(demo_criteria())
    pipeline = pipeline_with(
        sampler=RatioSampler(),
        evaluators=demo_evaluators(),
        criteria=demo_criteria(),
        storage=(scores,),
        capabilities=of_every_pipeline(scores.breach, on_breach=scores.on_breach),
    )
    run = DemoRun(
        pipeline, scores, "everything", total=600, seconds=0.5, destination="to nowhere", release=2
    )
    agent = Agent("support", pipeline, pace=0.0)

    async def serve() -> None:
        for turn in plan_turns(calls=600, seconds=0.5):
            await agent.serve(turn)

    asyncio.run(serve())
    run.calls, run.ended = 600, time.monotonic()
    assert pipeline.flush(30.0)
    yield run
    pipeline.shutdown(5.0)


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_screens_fit_every_width(finished: DemoRun, columns: int) -> None:
    """Narrow terminals lose columns of the table, but no pass rate. The summary names the drop and
    where to look.
    """
    console = Console(file=io.StringIO(), width=columns, force_terminal=False)
    console.print(render(finished, console))
    delivery = DemoDelivery("http://localhost:4317", "shop", complete=True, spans=True)
    print_summary(finished, console, delivery, evaluated=True, planted=True)
    shown = console.file.getvalue()
    prose = [line for line in shown.splitlines() if not COPIED.search(line)]
    assert max(len(line.rstrip()) for line in prose) <= columns
    for criterion in CRITERIA:
        assert len(re.findall(rf"^ *{criterion} +\d+ %", shown, re.MULTILINE)) >= 2
    assert columns < 60 or shown.count("trend") == 2
    unfolded = " ".join(shown.split())
    assert "agenteval_responses_total" in unfolded
    assert "gen_ai.evaluation.result" in unfolded
    assert re.search(r"Quality dropped: \d objectives breached \(prompt v2", unfolded)
    assert re.search(r"next_step \d+ % \(\d+.\d+\) . \d+ % \(\d+.\d+\) below 80 % at \d", unfolded)
    assert re.search(r"why: no_next_step \d+ of the last \d+", unfolded)


@pytest.mark.backend
@pytest.mark.parametrize("agent", ["support", pytest.param("recorded", marks=pytest.mark.shared)])
def test_a_collector_gets_the_application_and_its_scores(
    collector: Collector, agent: str, request: pytest.FixtureRequest
) -> None:
    """The trace has request, agent and tool spans; the scores are children of the agent's span.
    Nothing is missing.
    """
    service, endpoint, protocol = f"demo-{agent}", collector.grpc_endpoint, "grpc"
    arguments = "--calls 60 --seconds 1"
    if agent == "recorded":
        endpoint, protocol = collector.http_endpoint, "http/protobuf"
        data = request.getfixturevalue("shared") / "data"
        arguments = f"--traffic {data}/tau_airline_sample.jsonl"
    ended = run_demo(
        f"{arguments} --otlp-endpoint {endpoint}",
        OTEL_SERVICE_NAME=service,
        OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
    )
    assert ended.returncode == 0
    assert f"Sent to {endpoint} as service {service}" in ended.stdout
    evaluated = outcomes(ended.stdout)["evaluated"]
    assert agent == "support" or evaluated > 500

    def runs(seen: Collector) -> int:
        return sum(span.name == f"evaluation {agent}" for span in seen.spans(service))

    collector.wait_for(lambda seen: runs(seen) == evaluated)
    spans = collector.spans(service)
    by_id = {span.span_id: span for span in spans}

    def parents(name: str) -> set[str]:
        return {by_id[span.parent_span_id].name for span in spans if span.name.startswith(name)}

    assert parents(f"invoke_agent {agent}") == {f"POST /{agent}"}
    for name in ("execute_tool", "chat", "evaluation"):
        assert parents(name) == {f"invoke_agent {agent}"}
    assert named_trace(ended) in {span.trace_id for span in spans}
    assert collector.wait_for(lambda seen: len(seen.logs(service)) >= 4 * evaluated)
    assert collector.wait_for(lambda seen: seen.metric("agenteval.evaluation.weight", service))


def named_trace(ended: subprocess.CompletedProcess[str]) -> str:
    """The trace that the summary names."""
    trace = re.search(r"^    ([0-9a-f]{32})$", ended.stdout, re.MULTILINE)
    assert trace
    return trace[1]


@pytest.mark.backend
def test_jaeger_shows_the_trace_that_the_summary_names(jaeger: Jaeger) -> None:
    """Jaeger by itself takes only spans: the summary says so, and the trace that it names is
    complete.
    """
    ended = run_demo(f"--calls 60 --seconds 1 --otlp-endpoint http://{jaeger.otlp_endpoint}")
    assert ended.returncode == 0
    assert "The spans did, but events or metrics did not." in ended.stdout
    trace = named_trace(ended)
    stored = jaeger.wait_for(lambda seen: seen.trace(trace))
    assert {"POST /support", "invoke_agent support", "evaluation support"} <= {
        span.name for span in stored.spans
    }
    assert stored.orphans() == []


def test_planned_traffic_is_lifelike() -> None:
    """The plan has streams, slow answers, failing tools, conversations and two prompts, in order of
    time.
    """
    turns = plan_turns(calls=600, seconds=20)
    assert len(turns) == 600
    assert turns == plan_turns(calls=600, seconds=20)
    assert turns == sorted(turns, key=lambda turn: turn.at_s)
    assert all((turn.release == 2) == (turn.at_s >= 10) for turn in turns)
    kinds = {"good", "vague", "long", "refused", "empty", "failed", "cut"}
    assert kinds <= {turn.kind for turn in turns}
    assert max(len(turn.messages) for turn in turns) == 8
    assert any(turn.streamed for turn in turns)
    assert any(turn.slow for turn in turns)
    assert any("error" in call["result"] for turn in turns for call in turn.tool_calls)


def test_the_demo_keeps_no_recorded_texts(cli: CommandLine) -> None:
    """Conversations that people recorded are scored, and their texts stay out of the database."""
    cli.file("own.jsonl", GOOD)
    cli("demo --traffic own.jsonl --storage own.db")
    assert [answer.content for answer in ComparedSource("own.db").answers()] == [None]
