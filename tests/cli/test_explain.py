"""`agenteval-otel explain`: outcomes, failures and error types, explained from counts."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import agenteval_otel
from agenteval_otel import monitor
from agenteval_otel.cli.counts import counts_of
from agenteval_otel.cli.explain import report
from agenteval_otel.engine.pipeline import InlineDispatcher
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.semconv import OUTCOMES
from agenteval_otel.storage import OtlpStorageProvider
from agenteval_otel.telemetry import reference
from tests.backends.collector import Collector
from tests.backends.faults import PostHandler, serving
from tests.cli.conftest import CommandLine
from tests.pipelines import pipeline_with


class Server(NamedTuple):
    address: str
    received: dict[str, str]


NOT_UNDERSTOOD_PAGE = """
agenteval_responses_total{agenteval_outcome="evaluated"} 900
agenteval_responses_total{agenteval_outcome="evaluated",agenteval_response_form="json"} 90
agenteval_responses_total{agenteval_outcome="capture_failed",agenteval_capture_reason="foreign_object"} 10
agenteval_responses_total{agenteval_outcome="capture_failed",agenteval_capture_reason="of_later"} 3
agenteval_answers_total{agenteval_unit="conversation"} 700
agenteval_answers_total{agenteval_unit="session"} 92
agenteval_answers_total{agenteval_unit="trace"} 198
"""
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
agenteval_last_success_seconds 1.7e9
agenteval_export_signals{agenteval_export_signal="traces",agenteval_export_reach="handed_over"} 1
agenteval_export_signals{agenteval_export_signal="logs",agenteval_export_reach="delivered"} 1
agenteval_export_signals{agenteval_export_signal="metrics",agenteval_export_reach="delivered"} 1
gen_ai_evaluation_score_bucket{le="+Inf"} 3
somebody_elses_total NaN
"""


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Starts servers on loopback that answer with one body, and keep the headers of the last
    request.
    """
    with contextlib.ExitStack() as servers:

        def start(body: bytes, *, status: int = 200, **headers: str) -> Server:
            received: dict[str, str] = {}

            class Handler(PostHandler):
                def do_GET(self) -> None:
                    received.update(self.headers)
                    self.answer(status, body, headers)

            return Server(
                f"http://127.0.0.1:{servers.enter_context(serving(Handler))}/metrics", received
            )

        yield start


def explained(text: str) -> str:
    """The report on the counts in a text."""
    return "\n".join(report(counts_of(text)))


SPANS = """
agenteval_spans_total{agenteval_spans_outcome="read",job="sidecar"} 40
agenteval_spans_total{agenteval_spans_outcome="late",job="sidecar"} 2
agenteval_spans_total{agenteval_spans_outcome="invalid",job="sidecar"} 0
agenteval_spans_total{agenteval_spans_outcome="not_understood",agenteval_spans_scope="acme.agents",job="sidecar"} 9
agenteval_spans_total{agenteval_spans_outcome="not_understood",agenteval_spans_scope="http",job="sidecar"} 30
"""


@pytest.mark.parametrize("page", [PAGE + SPANS, SPANS])
def test_scopes_that_no_mapper_reads_are_named(page: str) -> None:
    """With the way out, also where no answer was understood; losses of spans are explained as
    failures are.
    """
    shown = " ".join(explained(page).split())
    assert "39 spans not understood, by their scope: http (30), acme.agents (9)" in shown
    assert "write a mapper: one class, docs/extending.md#a-span-mapper" in shown
    assert "spans:late failed 2 times" in shown
    assert "spans:invalid" not in shown.split("spans:late failed", 1)[0]


def test_what_was_not_understood_is_told_by_reason() -> None:
    """With what to do, and beside it the share that was judged as JSON."""
    shown = " ".join(explained(NOT_UNDERSTOOD_PAGE).split())
    assert "Judged as JSON: 90 of 990 evaluated answers, 9.1 %" in shown
    assert "Without the id of a conversation or session: 20.0 % of 990 emitted answers." in shown
    assert "10 foreign_object: objects of another library" in shown
    assert "give it with capture= or annotate(response=...)" in shown
    assert "3 of_later: not known to this version" in shown


def test_without_arguments_every_outcome_is_listed(cli: CommandLine) -> None:
    """Each outcome has a line; parts and error types are named."""
    shown = cli("explain")
    lines = [line for line in shown.splitlines() if line.startswith("  ") and line[2] != " "]
    assert [line.split()[0] for line in lines] == list(OUTCOMES)
    assert "storage:<type>" in shown
    assert "quarantined" in shown


@pytest.mark.parametrize(
    "name", ["dropped_queue_full", "storage:json_file", "annotate:contxt", "timeout"]
)
def test_a_name_is_explained_in_full(cli: CommandLine, name: str) -> None:
    """An outcome, a part or an error type has causes and remedies; several names keep their order."""
    shown = cli("explain", name, "disabled")
    assert shown.startswith(f"{name}\n")
    assert shown.index("Causes") < shown.index("To do") < shown.index("\ndisabled\n")


def test_an_unknown_name_is_refused_with_the_nearest(cli: CommandLine) -> None:
    """The error names a few that are near too, with exit code 2."""
    cli("explain droped_queue_full", code=2)
    assert "did you mean 'dropped_queue_full'?" in cli.err
    assert "Near: queue_full" in cli.err


def test_every_outcome_and_part_is_explained() -> None:
    """Each has causes, and remedies that are sentences."""
    assert tuple(reference.OUTCOMES) == OUTCOMES
    for explanations in (reference.OUTCOMES, reference.FAILURES, reference.ERROR_TYPES):
        for name, explanation in explanations.items():
            assert explanation.causes, name
            assert all(remedy.endswith(".") for remedy in explanation.remedies), name


def test_every_error_type_of_the_package_is_explained() -> None:
    """Each literal `error_type` in the source has its explanation."""
    literals: set[str] = set()
    for file in Path(agenteval_otel.__file__).parent.rglob("*.py"):
        literals.update(re.findall(r"\berror_type=\"([a-z_]+)\"", file.read_text("utf-8")))
    assert len(literals) > 10
    assert sorted(literals - set(reference.ERROR_TYPES)) == []


def test_the_result_of_accounting_is_explained(cli: CommandLine) -> None:
    """Outcomes have their shares, losses are explained in full, and harmless outcomes are no
    losses.
    """
    counts = dict.fromkeys(OUTCOMES, 0) | {
        "evaluated": 180,
        "not_sampled": 1795,
        "dropped_queue_full": 25,
    }
    cli.file("accounting.json", json.dumps(counts))
    shown = cli("explain --from accounting.json")
    assert "2,000 calls" in shown
    assert [" ".join(line.split()) for line in shown.splitlines()[2:5]] == [
        "not_sampled 1,795 89.8 %",
        "evaluated 180 9.0 %",
        "dropped_queue_full 25 1.2 %",
    ]
    assert "dropped_queue_full: 25 of 2,000 calls, 1.2 %" in shown
    assert "not_sampled:" not in shown
    assert "Nothing was lost" not in shown


@pytest.mark.parametrize("written", [json.dumps, repr], ids=["JSON", "printed"])
def test_counts_are_read_from_standard_input(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, written: Callable[[object], str]
) -> None:
    """A dictionary as Python prints it is as good as JSON, also where a name has an apostrophe."""
    counts = {"outcomes": {"evaluated": 2, "disabled": 1}, "failures": {"storage:Anne's": 2}}
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(f"\ufeff{written(counts)}".encode()))
    )
    shown = cli("explain --from -")
    assert "3 calls" in shown
    assert "storage:Anne's failed 2 times" in shown


FAILURES = '{"outcomes": {"evaluated": 5}, "failures": {"storage:mine": 2, "sampler": 0, "new": 1}}'
RESULTS = '{"outcomes": {"evaluated": 5}, "results": {"scored": 4, "skipped": 0, "failed": 1}}'


@pytest.mark.parametrize(
    ("counts", "shown"),
    [
        (FAILURES, "storage:mine failed 2 times\n  A storage provider"),
        (FAILURES, "new failed once"),
        (RESULTS, "4 scored, 0 skipped, 1 failed"),
        (
            RESULTS,
            "Failed results: 1\n  By criterion and error.type: agenteval_evaluation_errors_total",
        ),
        (
            '{"evaluated": 2, "disabled": 1}',
            "Nothing was lost. This source does not contain failures",
        ),
        ('{"evaluated": 2, "disabled": 1}', "evaluated: 2 of 3 calls, 66.7 %"),
        ('{"evaluated": 0}', "No call of a monitored handler was counted."),
        ('{"evaluated": 99999, "capture_failed": 1}', "capture_failed: 1 of 100,000 calls, 0.1 %"),
        (
            'agenteval_responses_total{agenteval_outcome="dropped_mood"} 3\n',
            "dropped_mood: 3 of 3 calls, 100.0 %\n  Not known to this version.",
        ),
    ],
)
def test_every_loss_and_failure_is_reported(counts: str, shown: str) -> None:
    """Failed parts and results, tiny shares and outcomes of a later version are reported; zeros are
    not.
    """
    text = explained(counts)
    assert shown in text
    assert "Nothing was lost" not in text or "disabled" in counts
    assert "sampler failed" not in text


def test_a_prometheus_page_is_explained(serve: Callable[..., Server], cli: CommandLine) -> None:
    """Outcomes are summed over processes and shown by agent, with errors and delivery; or only one
    outcome.
    """
    address = serve(PAGE.encode()).address
    shown = cli("explain --from", address)
    for text in (
        "100 calls",
        "support: 98 calls: 91.8 % evaluated, 8.2 % dropped_queue_full",
        'sa"le}s\\: 2 calls: 100.0 % not_sampled',
        "tone failed 4 times with timeout\n  The evaluator took longer",
        "tone failed once with KeyError\n  The evaluator failed with `KeyError`: ",
        "Last emitted result: ",
        "Logs, metrics: delivered by our own exporters",
        "Traces: handed over to the application's provider",
    ):
        assert text in shown
    shown = cli("explain evaluated --from", address)
    assert shown.startswith("evaluated: 90 of 100 calls, 90.0 %\n")
    assert "dropped_queue_full" not in shown


@pytest.mark.parametrize(
    "name", ["agenteval_responses", "mine_agenteval_responses_total", "agenteval_responses_total"]
)
def test_collectors_may_change_the_name(name: str) -> None:
    """A prefix, or a counter without its suffix, is the same metric."""
    counts = counts_of(f'{name}{{agenteval_outcome="evaluated"}} 3\n')
    assert counts.totals == {"evaluated": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "--from: not JSON"),
        ("[1]", "expected a mapping of outcomes, found list"),
        (
            '{"evalated": 1}',
            r"outcomes.evalated: unknown \(did you mean 'evaluated'\?\)\. Known: evaluated, ",
        ),
        (
            '{"outcomes": {}, "falures": {}}',
            r"falures: unknown field \(did you mean 'failures'\?\)",
        ),
        ('{"evaluated": -1}', "outcomes.evaluated: expected a whole number from 0, found -1"),
        ('{"evaluated": true}', "outcomes.evaluated: expected a whole number"),
        ('{"outcomes": 3}', "outcomes: expected a mapping of counts, found int"),
        ('{"a":' * 5000 + "}" * 5000, "not JSON"),
        ("<html>404</html>", "0 series, and no agenteval_responses_total"),
        ("up 1\n", "1 series, and no agenteval_responses_total"),
        ("", "0 series"),
        (
            'notagenteval_responses_total{agenteval_outcome="evaluated"} 3',
            "no agenteval_responses_total",
        ),
    ],
)
def test_a_text_without_counts_is_refused(text: str, message: str) -> None:
    """The error names the field, what was found, and what was expected."""
    with pytest.raises(ConfigurationError, match=message):
        counts_of(text)


@pytest.mark.parametrize("source", ["ftp://127.0.0.1/x", "http:///metrics", "nowhere.json", "."])
def test_an_unreadable_source_is_refused(source: str, cli: CommandLine) -> None:
    """A missing file, a folder or another scheme ends with exit code 2 and a reason."""
    cli("explain --from", source, code=2)
    assert "cannot be read: " in cli.err


def test_credentials_go_to_their_server_only(
    serve: Callable[..., Server], cli: CommandLine
) -> None:
    """A redirect is followed without them, and an error shows the status and no password."""
    target = serve(PAGE.encode())
    redirecting = serve(b"", status=302, Location=target.address)
    broken = serve(b"", status=503)
    with_password = [
        server.address.replace("://", "://me:hidden@") for server in (redirecting, broken)
    ]
    assert "100 calls" in cli("explain --from", with_password[0])
    assert redirecting.received["Authorization"].startswith("Basic ")
    assert target.received
    assert "Authorization" not in target.received
    cli("explain --from", with_password[1], code=2)
    assert "503" in cli.err
    assert "hidden" not in cli.err


def test_the_proxy_of_the_environment_is_used(
    serve: Callable[..., Server], cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As judges and exporters do; not for the hosts of NO_PROXY."""
    proxy, direct = serve(PAGE.encode()), serve(PAGE.encode())
    monkeypatch.setenv("http_proxy", proxy.address.removesuffix("/metrics"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    cli("explain --from", direct.address)
    assert direct.received
    assert not proxy.received
    cli("explain --from http://collector.example/metrics")
    assert proxy.received["Host"] == "collector.example"


@pytest.mark.backend
def test_the_page_of_a_real_collector(own_collector: Collector, cli: CommandLine) -> None:
    """The Collector's page for Prometheus has outcomes by agent, and the evaluators that failed."""

    def broken(evaluation_input: Any) -> bool:
        raise KeyError("tone")

    storage = OtlpStorageProvider(endpoint=own_collector.grpc_endpoint)
    pipeline = pipeline_with(
        sampler=RatioSampler(ratio=1.0),
        evaluators=(),
        storage=[storage],
        dispatcher=InlineDispatcher(),
    )

    @monitor(agent="support", evaluators=["ResponseHealth", broken], pipeline=pipeline)
    def answer(question: str) -> str:
        return "An answer."

    for _ in range(3):
        answer("A question?")
    assert pipeline.flush(20.0)
    own_collector.wait_for(lambda seen: "agenteval_responses_total" in seen.scrape(), timeout_s=20)
    shown = cli("explain --from", f"http://127.0.0.1:{own_collector.ports.prometheus}/metrics")
    assert "3 calls of monitored handlers" in shown
    assert "broken failed 3 times with KeyError" in shown
    assert pipeline.shutdown(10.0)


def test_how_long_until_the_page(cli: CommandLine) -> None:
    """A row for each objective below 1; fewer verdicts a minute and more processes take longer."""
    alerts = "explain --alerts --settings settings.yaml"
    cli.settings("""
        evaluators: [ResponseHealth]
        criteria:
          default: [{name: response_health, objective: 0.95}]
    """)
    median_s = []
    for more in ("", "--processes 4", "--per-minute 1"):
        shown = cli(f"{alerts} {more}")
        assert "that do not depend on one another" in shown
        median = re.search(r"^response_health  95 % +(\S+) (s|min) ", shown, re.MULTILINE)
        assert median, shown
        median_s.append(float(median[1]) * {"s": 1, "min": 60}[median[2]])
    assert 30 < median_s[0] < median_s[1] < median_s[2] < 1_200
    cli.settings("evaluators: [ResponseHealth]")
    assert cli(alerts) == (
        "No criterion has an objective below 1 that can be missed: none raises a page.\n"
    )
    cli.settings("""
        evaluators: [ResponseHealth, {type: KeywordCoverage, criterion_name: kw, expected_keywords: [a], threshold: 1}]
        criteria:
          default: [{name: response_health, objective: 0.95}, {name: kw, objective: 0.95, of_last: 100}]
    """)
    head, last, evidence = cli(f"{alerts} --per-minute 1").splitlines()[3:6]
    assert head.endswith("false pages")
    assert last.startswith("kw               95 % of last 100  ")
    assert last.endswith("of the time")
    assert evidence.endswith("every 38 years")
    assert "in breach 38 %" in cli.out
    cli("explain --alerts", code=2)
    assert "--settings: no settings file is named" in cli.err
