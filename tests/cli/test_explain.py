"""`agenteval-otel explain`: outcomes, failures and error types in words, from counts that it is given."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import agenteval_otel
from agenteval_otel import monitor
from agenteval_otel.cli import main
from agenteval_otel.cli.explain import counts as counts_module
from agenteval_otel.cli.explain.counts import MAX_BYTES, counts_from, counts_of
from agenteval_otel.cli.explain.report import report
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.pipeline import Pipeline
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.semconv import OUTCOMES
from agenteval_otel.storage import OtlpStorageProvider
from agenteval_otel.telemetry import reference
from agenteval_otel.testing import InlineDispatcher
from tests.backends.collector import Collector

PAGE = r"""
# HELP agenteval_responses_total Calls of monitored handlers by outcome.
# TYPE agenteval_responses_total counter
agenteval_responses_total{agenteval_outcome="evaluated",gen_ai_agent_name="support",job="a",instance="1"} 60
agenteval_responses_total{agenteval_outcome="evaluated",gen_ai_agent_name="support",job="a",instance="2"} 3e1 1700000000
agenteval_responses_total{agenteval_outcome="dropped_queue_full",gen_ai_agent_name="support"} 8
agenteval_responses_total{agenteval_outcome="not_sampled",gen_ai_agent_name="sa\"le}s\\"} 2
agenteval_responses_total{agenteval_outcome="disabled",gen_ai_agent_name="support"} 0
agenteval_evaluation_errors_total{gen_ai_evaluation_name="tone",error_type="timeout"} 4
agenteval_evaluation_errors_total{gen_ai_evaluation_name="tone",error_type="KeyError"} 1 # {trace_id="a"} 1 1
agenteval_queue_size 1900
agenteval_queue_max_bytes 33554432
agenteval_queue_bytes{instance="1"} 3e+07
agenteval_last_success_seconds 1.7e9
agenteval_export_signals{agenteval_export_signal="traces",agenteval_export_reach="handed_over"} 1
agenteval_export_signals{agenteval_export_signal="logs",agenteval_export_reach="delivered"} 1
agenteval_export_signals{agenteval_export_signal="metrics",agenteval_export_reach="delivered"} 1
gen_ai_evaluation_score_bucket{le="+Inf"} 3
somebody_elses_total NaN
"""


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Serves one body at a loopback address, with a status and headers."""
    servers: list[ThreadingHTTPServer] = []

    def start(body: bytes, *, status: int = 200, headers: dict[str, str] | None = None) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.server.seen = dict(self.headers)  # type: ignore[attr-defined]
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}/metrics"

    start.servers = servers  # type: ignore[attr-defined]
    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def say(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["explain", *arguments]) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def test_without_arguments_every_outcome_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """One line begins with each outcome, and the other words that are known are named."""
    told = say(capsys)
    assert [line.split()[0] for line in told.splitlines() if line.startswith("  ") and line[2] != " "] == list(OUTCOMES)
    assert "storage:<type>" in told
    assert "quarantined" in told


@pytest.mark.parametrize("word", ["dropped_queue_full", "storage:json_file", "sampler", "annotate:contxt", "timeout"])
def test_a_word_is_told_in_full(capsys: pytest.CaptureFixture[str], word: str) -> None:
    """An outcome, a part that broke or an error type comes with causes and with what to do."""
    told = say(capsys, word)
    assert told.startswith(f"{word}\n")
    assert "Causes" in told
    assert "To do" in told


def test_several_words_stand_in_the_order_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Each word has its own paragraph."""
    told = say(capsys, "timeout", "disabled")
    assert told.index("timeout\n") < told.index("\ndisabled\n")


def test_an_unknown_word_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelled word is refused with the word that was meant and the known ones, exit code 2."""
    told = say(capsys, "droped_queue_full", code=2)
    assert "did you mean 'dropped_queue_full'?" in told
    assert "known: evaluated, " in told


def test_every_word_of_ours_is_explained() -> None:
    """No outcome and no part is without causes and orders, and every sentence ends."""
    assert tuple(reference.OUTCOMES) == OUTCOMES
    for found in (
        *reference.OUTCOMES.values(), *reference.FAILURES.values(), *reference.ERROR_TYPES.values(),
        reference.NO_CALLS,
    ):  # fmt: skip
        assert found.causes
        assert all(remedy.endswith(".") for remedy in found.remedies)
    assert all(found.means.endswith(".") for found in reference.FAILURES.values())
    assert all(not found.means.endswith(".") for found in reference.OUTCOMES.values())


def test_every_error_type_of_ours_is_explained() -> None:
    """Each word that the package gives as an `error_type` has its explanation."""
    given = {
        keyword.value.value
        for file in sorted(Path(agenteval_otel.__file__).parent.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Call)
        for keyword in node.keywords if keyword.arg == "error_type"
        if isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str)
    }  # fmt: skip
    of_ours = {word for word in given if word and word.islower()}  # classes of what was raised have capitals
    assert len(of_ours) > 10
    assert sorted(of_ours - set(reference.ERROR_TYPES)) == []


def test_counts_as_accounting_gives_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Outcomes come with their shares, the losses in full, what was asked for is not called a loss."""
    counted = dict.fromkeys(OUTCOMES, 0) | {"evaluated": 180, "not_sampled": 1795, "dropped_queue_full": 25}
    file = tmp_path / "accounting.json"
    file.write_text(json.dumps(counted))
    told = say(capsys, "--from", str(file))
    assert "2,000 calls" in told
    assert [line.split() for line in told.splitlines()[2:5]] == [
        ["not_sampled", "1,795", "89.8", "%"],
        ["evaluated", "180", "9.0", "%"],
        ["dropped_queue_full", "25", "1.2", "%"],
    ]  # fmt: skip
    assert "dropped_queue_full: 25 of 2,000 calls, 1.2 %" in told
    assert "not_sampled:" not in told
    assert "Nothing was lost" not in told


def test_counts_as_python_prints_them(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What `print(accounting())` shows can be pasted into standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(repr({"evaluated": 2, "disabled": 1}).encode())))
    told = say(capsys, "--from", "-")
    assert "3 calls" in told
    assert "Nothing was lost. This source does not contain failures" in told
    assert "evaluated: 2 of 3 calls, 66.7 %" in told


def test_failures_and_results_are_told_too() -> None:
    """Parts that broke are explained by their kind, however the part is called; unknown ones are still named."""
    told = "\n".join(report(counts_of(json.dumps({
        "outcomes": {"evaluated": 5}, "failures": {"storage:mine": 2, "sampler": 0, "new": 1},
        "results": {"scored": 9, "skipped": 1, "failed": 0},
    }))))  # fmt: skip
    assert "storage:mine failed 2 times\n  A storage provider" in told
    assert "new failed once" in told
    assert "sampler failed" not in told
    assert "9 scored, 1 skipped, 0 failed" in told
    assert "Nothing was lost" not in told


def test_failed_results_are_no_peace() -> None:
    """Where every call was evaluated, and evaluators failed, that is told; the counts do not say with what."""
    told = "\n".join(report(counts_of('{"outcomes": {"evaluated": 5}, "results": {"scored": 4, "failed": 1}}')))
    assert "Failed results: 1\n  By criterion and error.type: agenteval_evaluation_errors_total" in told
    assert "Nothing was lost" not in told


def test_no_calls_is_an_answer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Where nothing was counted the likely reasons are told."""
    (tmp_path / "none.json").write_text(json.dumps(dict.fromkeys(OUTCOMES, 0)))
    assert "No call of a monitored handler was counted." in say(capsys, "--from", str(tmp_path / "none.json"))


def test_a_tiny_share_is_not_rounded_to_nothing() -> None:
    """One loss among a hundred thousand calls is not 0.0 %."""
    told = "\n".join(report(counts_of('{"evaluated": 99999, "capture_failed": 1}')))
    assert "capture_failed: 1 of 100,000 calls, 0.1 %" in told


def test_a_prometheus_page(serve: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    """Outcomes are summed over processes and told by agent; errors, the queue and the last delivery stand beside."""
    told = say(capsys, "--from", serve(PAGE.encode()))
    assert "100 calls" in told
    assert "support: 98 calls: 91.8 % evaluated, 8.2 % dropped_queue_full" in told
    assert 'sa"le}s\\: 2 calls: 100.0 % not_sampled' in told
    assert "Queue: 1,900 calls, 28.6 of 32.0 MiB: nearly full" in told
    assert "tone failed 4 times with timeout\n  The evaluator took longer" in told
    assert "tone failed once with KeyError\n  The evaluator failed with `KeyError`: " in told
    assert "Last emitted result: " in told
    assert "Logs, metrics: delivered by our own exporters" in told
    assert "Traces: handed over to the application's provider" in told


def test_a_word_with_counts_has_its_share(serve: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    """Of a whole page only what was asked for is told, with its share."""
    told = say(capsys, "evaluated", "--from", serve(PAGE.encode()))
    assert told.startswith("evaluated: 90 of 100 calls, 90.0 %\n")
    assert "dropped_queue_full" not in told


@pytest.mark.parametrize("name", ["agenteval_responses", "mine_agenteval_responses_total", "agenteval_responses_total"])
def test_names_as_collectors_make_them(name: str) -> None:
    """A prefix of the Collector's, or its counters without suffix, are the same metric."""
    counts = counts_of(f'{name}{{agenteval_outcome="evaluated"}} 3\n')
    assert counts.totals == {"evaluated": 3}


def test_a_name_that_only_ends_alike_is_another() -> None:
    """A metric of somebody else's is not taken for ours."""
    with pytest.raises(ConfigurationError, match="no agenteval_responses_total"):
        counts_of('notagenteval_responses_total{agenteval_outcome="evaluated"} 3\n')


def test_an_outcome_of_a_later_version_is_shown() -> None:
    """A page of an application that knows more outcomes than this command is still told."""
    told = "\n".join(report(counts_of('agenteval_responses_total{agenteval_outcome="dropped_mood"} 3\n')))
    assert "dropped_mood: 3 of 3 calls, 100.0 %\n  Not known to this version." in told


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "--from: not JSON"),
        ("[1]", "expected a mapping of outcomes, found list"),
        ('{"evalated": 1}', r"outcomes.evalated: unknown \(did you mean 'evaluated'\?\); known: evaluated, "),
        ('{"outcomes": {}, "falures": {}}', r"falures: unknown field \(did you mean 'failures'\?\)"),
        ('{"evaluated": -1}', "outcomes.evaluated: expected a whole number from 0, found -1"),
        ('{"evaluated": true}', "outcomes.evaluated: expected a whole number"),
        ('{"outcomes": 3}', "outcomes: expected a mapping of counts, found int"),
        ('{"a":' * 5000 + "}" * 5000, "not JSON"),
        ("<html>404</html>", "0 series, and no agenteval_responses_total"),
        ("up 1\n", "1 series, and no agenteval_responses_total"),
        ("", "0 series"),
    ],
)
def test_what_holds_no_counts_is_refused(text: str, message: str) -> None:
    """The error names the field, what was found and what was expected."""
    with pytest.raises(ConfigurationError, match=message):
        counts_of(text)


@pytest.mark.parametrize(
    "source", ["ftp://127.0.0.1/x", "http:///metrics", "file:///etc/hostname", "nowhere.json", "."]
)
def test_what_cannot_be_read_is_refused(
    source: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file that is not there, a folder and other schemes end with exit code 2 and a reason."""
    monkeypatch.chdir(tmp_path)
    assert "cannot be read: " in say(capsys, "--from", source, code=2)


def test_a_server_that_refuses_is_told(serve: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    """Its status is told; a redirect is not followed, so that credentials go nowhere else; no password is shown."""
    assert "it answered 503" in say(capsys, "--from", serve(b"", status=503), code=2)
    elsewhere = serve(PAGE.encode())
    address = serve(b"", status=302, headers={"Location": elsewhere}).replace("://", "://me:hidden@")
    told = say(capsys, "--from", address, code=2)
    assert "it answered 302, and redirects are not followed" in told
    assert "hidden" not in told
    first, second = serve.servers[1:]  # type: ignore[attr-defined]
    assert not hasattr(first, "seen")
    assert second.seen["Authorization"].startswith("Basic ")


def test_reading_is_bounded(serve: Callable[..., str], tmp_path: Path) -> None:
    """What is larger than the limit is refused, from a file and over HTTP, without being read to its end."""
    large = tmp_path / "large"
    large.write_bytes(b"x" * (MAX_BYTES + 2))
    with pytest.raises(ConfigurationError, match="is larger than 16 MiB"):
        counts_from(str(large))
    with pytest.raises(ConfigurationError, match="is larger than 16 MiB"):
        counts_from(serve(b"x" * (MAX_BYTES + 1)))


def test_a_page_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers a byte at a time, for ever, is left after the time limit."""
    monkeypatch.setattr(counts_module, "TIMEOUT_S", 0.1)

    class Endless(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(b"#")

        def log_message(self, *_: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        with pytest.raises(ConfigurationError, match=r"no end within 0\.1 s"):
            counts_from(f"http://127.0.0.1:{server.server_address[1]}/metrics")
        server.shutdown()


def test_many_agents_are_cut_short() -> None:
    """Of many agents those with the most calls are told, an agent without a name among them."""
    lines = [
        f'agenteval_responses_total{{agenteval_outcome="evaluated",gen_ai_agent_name="a{n}"}} {n}' for n in range(30)
    ]
    lines.append('agenteval_responses_total{agenteval_outcome="evaluated"} 99')
    told = "\n".join(report(counts_of("\n".join(lines))))
    assert "(unnamed): 99 calls" in told
    assert "a29: 29 calls" in told
    assert "a0: " not in told
    assert "and 11 more" in told


@pytest.mark.backend
def test_the_page_of_a_real_collector(own_collector: Collector, capsys: pytest.CaptureFixture[str]) -> None:
    """What the Collector shows to Prometheus is read as it is: outcomes by agent, and the evaluators that failed."""

    def broken(evaluation_input: Any) -> bool:
        raise KeyError("tone")

    storage = OtlpStorageProvider(endpoint=own_collector.grpc_endpoint)
    pipeline = Pipeline(
        sampler=RatioSampler(ratio=1.0), evaluators=(), storage=[storage], dispatcher=InlineDispatcher()
    )

    @monitor(agent="support", evaluators=["ResponseHealth", broken], pipeline=pipeline)
    def answer(question: str) -> str:
        return "An answer."

    for _ in range(3):
        answer("A question?")
    assert pipeline.flush(20.0)
    own_collector.wait_for(lambda seen: "agenteval_responses_total" in seen.scrape(), timeout_s=20)
    told = say(capsys, "--from", f"http://127.0.0.1:{own_collector.ports.prometheus}/metrics")
    assert "3 calls of monitored handlers" in told
    assert "broken failed 3 times with KeyError" in told
    assert pipeline.shutdown(10.0)
