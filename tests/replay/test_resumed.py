"""A replay that is ended and started again: what is in the results file is scored once, and all of
it is scored.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import semconv
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.offline.replay.results_file import REPLAY, ResultsFile, line_of
from tests.cli.conftest import CommandLine
from tests.promises.receiver import Receiver, Reply

from . import recordings as rec

ANSWERS = 3_000
PLUGIN = """
import os, time
from agenteval_otel.evaluators import CriterionEvaluator

class Slow(CriterionEvaluator, type="SlowAndCounted"):
    criterion_name: str = "slow"
    path: str

    def score(self, evaluation_input):
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, (evaluation_input.prompt + "\\n").encode())
        os.close(handle)
        time.sleep(0.0005)
        return "7" not in evaluation_input.prompt
"""


def result(key: str) -> AggregatedEvaluationResult:
    return AggregatedEvaluationResult(
        replayed=True, metadata={REPLAY: {"key": key, "recorded": []}}
    )


@pytest.mark.slow
def test_a_killed_replay_goes_on(tmp_path: Path) -> None:
    """Killed three times in its work: each answer has one result, and only what was under way was
    scored anew.
    """
    (tmp_path / "slow_plugin.py").write_text(PLUGIN)
    (tmp_path / "s.yaml").write_text(
        "plugins: [slow_plugin]\nevaluators: [{type: SlowAndCounted, path: scored, execution: inline}]\n"
    )
    requests = [
        rec.traces([rec.answer_span(number, f"Answer {number}.")]) for number in range(ANSWERS)
    ]
    (tmp_path / "otlp.jsonl").write_text(rec.lines(*requests))
    command = [
        sys.executable,
        "-m",
        "agenteval_otel",
        "replay",
        "otlp.jsonl",
        "--settings",
        "s.yaml",
        "--dataset",
        "failing.jsonl",
        "--report",
        "json",
        "--quiet",
    ]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    never = threading.Event()
    for kill in range(1, 4):
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL
        )
        while _lines(tmp_path / "replay.jsonl") < 600 * kill:
            assert process.poll() is None
            never.wait(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    with (tmp_path / "replay.jsonl").open("ab") as file:
        file.write(b'{"half": ')  # as a write that the end of the process cut
    with (tmp_path / "failing.jsonl").open("ab") as file:
        file.write(b'{"response": "No.", "metadata": {"replay": "of-no-result"}}\n{"half')
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    report = json.loads(done.stdout)
    keys = [
        json.loads(line)["metadata"][REPLAY]["key"]
        for line in (tmp_path / "replay.jsonl").read_text().splitlines()
    ]
    assert sorted(keys) == sorted("-".join(rec.ids(number)) for number in range(ANSWERS))
    assert report["answers"] == ANSWERS
    assert 1_800 <= report["earlier"] < ANSWERS
    [slow] = report["new"]["criteria"]
    failing = [f"Question {number}?" for number in range(ANSWERS) if "7" in str(number)]
    assert (slow["scored"], slow["labels"]["fail"]) == (ANSWERS, len(failing))
    dataset = [json.loads(line) for line in (tmp_path / "failing.jsonl").read_text().splitlines()]
    assert sorted(row["prompt"] for row in dataset) == sorted(failing)
    scored = Counter((tmp_path / "scored").read_text().splitlines())
    assert len(scored) == ANSWERS
    assert scored.total() <= ANSWERS + 3 * 8  # of each kill the answers that were under way


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_the_end_is_the_end(cli: CommandLine) -> None:
    """Started once more it scores nothing, and reports the same figures."""
    settings = cli.settings("evaluators: [ResponseHealth]")
    spans, events = (
        [rec.answer_span(0, "Yes."), rec.answer_span(1, "")],
        [rec.result_event(0, "response_health", 0.0)],
    )
    cli.file("otlp.jsonl", rec.lines(rec.traces(spans), rec.logs(events)))
    arguments = ("replay", "otlp.jsonl", "--settings", settings, "--report", "json")
    first, second = json.loads(cli(*arguments)), json.loads(cli(*arguments))
    assert (first["answers"], first["earlier"], second["earlier"]) == (2, 0, 2)
    assert (second["compared"], second["new"]) == (first["compared"], first["new"])


def test_other_evaluators_do_not_go_on(cli: CommandLine) -> None:
    """Nor other sources or filters: results of two versions in one file would be figures of
    neither.
    """
    cli.file("otlp.jsonl", rec.lines(rec.traces([rec.answer_span(0, "Yes.")])))
    rule = "evaluators: [{{type: KeywordCoverage, criterion_name: c, expected_keywords: [{}]}}]"
    cli("replay", "otlp.jsonl", "--settings", cli.settings(rule.format("a")))
    for options in (
        ("--settings", cli.settings(rule.format("b"))),
        ("--agent", "support"),
        ("--dataset", "d.jsonl"),
    ):
        cli("replay", "otlp.jsonl", *options, code=2)
        assert (
            "--results: replay.jsonl has the results of a replay with other sources, evaluators"
            in cli.err
        )
    cli.file("notes.jsonl", "{}\n")
    cli("replay", "otlp.jsonl", "--results", "notes.jsonl", code=2)
    assert "--results: notes.jsonl exists, and is of no replay that began here" in cli.err
    cli("replay", "otlp.jsonl", "--results", "new.jsonl", "--dataset", "notes.jsonl", code=2)
    assert "--dataset: notes.jsonl exists" in cli.err
    assert (cli.folder / "notes.jsonl").read_text() == "{}\n"


def test_one_process_writes_a_file(tmp_path: Path) -> None:
    """A second one is refused while the first is at work; the state keeps the window of the first
    start.
    """
    first = ResultsFile(tmp_path / "r.jsonl", ["a"], (1, 2), None)
    with first:
        assert list(first.earlier()) == []
        first.add("k", result("k"), None)
        first.note_delivered(first.size)
        second = ResultsFile(tmp_path / "r.jsonl", ["a"], (5, 6), None)
        assert (second.window, second.delivered) == ((1, 2), len(line_of(result("k"))))
        with pytest.raises(Exception, match="held by another process"):
            second.__enter__()
    with second:
        assert [(at, item.metadata[REPLAY]["key"]) for at, item in second.earlier()] == [(0, "k")]


def test_what_is_emitted_is_marked_and_is_no_metric(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events in the context of the original spans; run spans in traces of their own that link to
    them; the service of the answer on both. Neither a metric nor content."""
    cli.file(
        "otlp.jsonl",
        rec.lines(rec.traces([rec.answer_span(number, "Yes.") for number in range(3)])),
    )
    with Receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        cli("replay", "otlp.jsonl", "--settings", cli.settings("evaluators: [ResponseHealth]"))
        events, spans, metrics = receiver.events(), receiver.spans(), receiver.bodies["/v1/metrics"]
    originals = {rec.ids(number) for number in range(3)}
    assert {(event.trace_id.hex(), event.span_id.hex()) for event in events} == originals
    assert {
        (link.trace_id.hex(), link.span_id.hex()) for span in spans for link in span.links
    } == originals
    assert not {span.trace_id.hex() for span in spans} & {trace_id for trace_id, _ in originals}
    moments: dict[str, set[str]] = {"LogRecord": set(), "Span": set()}
    for item in (*events, *spans):
        values = {pair.key: pair.value for pair in item.attributes}
        assert values[semconv.EVALUATION_REPLAYED].bool_value
        assert values[semconv.EVALUATION_LATE].string_value == "replay"
        moments[type(item).__name__].add(values[semconv.RESPONSE_ENDED_AT].string_value)
        assert values["service.name"].string_value == "shop"
        assert "Yes." not in str(item)
    assert metrics == []
    answered = {f"2026-03-01T00:00:0{number + 1}.000Z" for number in range(3)}
    assert moments == {"LogRecord": answered, "Span": answered}


def test_what_did_not_arrive_is_sent_by_the_next_start(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receiver refuses everything at first: exit code 1 says so, and the second start emits
    each result once.
    """
    count = 600
    cli.file(
        "otlp.jsonl",
        rec.lines(rec.traces([rec.answer_span(number, "Yes.") for number in range(count)])),
    )
    settings = cli.settings("evaluators: [ResponseHealth]")
    arguments: tuple[Any, ...] = (
        "replay",
        "otlp.jsonl",
        "--settings",
        settings,
        "--report",
        "json",
    )
    with Receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        receiver.reply = Reply(400)
        report = json.loads(cli(*arguments, code=1))
        assert report["undelivered"] == count
        assert "The same command sends them again" in cli.err
        receiver.reply = Reply()
        for bodies in receiver.bodies.values():
            bodies.clear()
        assert json.loads(cli(*arguments))["undelivered"] == 0
        assert len(receiver.spans()) == count
        cli(*arguments)
        assert len(receiver.spans()) == count
