"""See it and be woken by it, for real: the shipped files with loopback ports, shrunken windows, the
demo's traffic.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agenteval_otel import semconv
from agenteval_otel.provisioning.pages import PAGES
from tests.provisioning.queries import PanelQuery, annotations_of, queries_of
from tests.ui.served import client_of, served

from .faults import LOOPBACK
from .jaeger import Jaeger
from .loki import Loki
from .programs import finish, started, wait_for_what_was_sent
from .prometheus import Prometheus
from .provisioned import alerting
from .sdk import SHIPPED
from .webhook import Webhook

pytestmark = [pytest.mark.backend, pytest.mark.live]

FOLDER = SHIPPED.parent
FALLING, HEALTHY, REVIEWED, OTHERS, SHOP = (
    "falling",
    "healthy",
    "reviewed",
    "others",
    "shop-in-detail",
)
SECONDS = 90
TIME_SCALE = 0.0005
"""A day is 43 s, six hours are 11 s."""
EVERY_S = 0.5
ARRIVAL_LIMIT_S = 30.0
FELL = "next_step"
CRITERION = "gen_ai_evaluation_name"


class Stack(NamedTuple):
    """What the operator has open, once the traffic is over; where the service that fell stores its
    answers; when the worse prompt was released, and the end.
    """

    jaeger: Jaeger
    prometheus: Prometheus
    loki: Loki
    webhook: Webhook
    stored: Path
    fell_at: float
    ended_at: float


@pytest.fixture(scope="module", name="stack")
def stack_fixture(
    jaeger: Jaeger, loki: Loki, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """Everything started and provisioned, the traffic run to its end, its last metrics arrived."""
    backends = {
        "COLLECTOR_TRACES_ENDPOINT": jaeger.otlp_endpoint,
        "COLLECTOR_LOGS_ENDPOINT": loki.otlp_endpoint,
    }
    folder = tmp_path_factory.mktemp("shipped")
    stored = folder / "answers.db"
    with alerting(
        folder,
        FOLDER / "agenteval.yaml",
        time_scale=TIME_SCALE,
        every_s=EVERY_S,
        shipped=FOLDER,
        environment=backends,
    ) as (collector, prometheus, hook):
        began = time.time()
        finish(*_traffic(collector.grpc_endpoint, stored))
        ended = time.time()
        wait_for_what_was_sent(collector, prometheus)
        yield Stack(jaeger, prometheus, loki, hook, stored, began + SECONDS / 2, ended)


def _traffic(endpoint: str, stored: Path) -> list[Any]:
    """The applications, each a process of its own; metrics every half second, as fits the shrunken
    windows.
    """
    demo = ("-m", "agenteval_otel", "demo", f"--seconds={SECONDS}", f"--calls={SECONDS * 20}")
    own = ("-m", "tests.backends.applications")
    programs = (
        (FALLING, "2.0", (*demo, f"--storage={stored}")),
        *((HEALTHY, version, (*demo, "--no-drop")) for version in ("1.0", "2.0")),
        (REVIEWED, "1.0", (*own, "reviewed", str(SECONDS))),
        (OTHERS, "1.0", (*own, "others", str(SECONDS))),
        (SHOP, "1.0", (*own, "shop")),
    )
    return [
        started(
            *arguments,
            OTEL_SERVICE_NAME=service,
            OTEL_EXPORTER_OTLP_ENDPOINT=endpoint,
            OTEL_RESOURCE_ATTRIBUTES=f"service.version={version}",
            OTEL_METRIC_EXPORT_INTERVAL="500",
            **({"AGENTEVAL_TELEMETRY__DETAIL": "result"} if service == SHOP else {}),
        )
        for service, version, arguments in programs
    ]


def test_a_quality_drop_wakes_somebody(stack: Stack) -> None:
    """The alert of the criterion that fell is posted to the webhook after the drop, with what it is
    about.
    """
    fell = {"job": FALLING, CRITERION: FELL}
    assert stack.prometheus.wait_for(lambda _: stack.webhook.firing(**fell), ARRIVAL_LIMIT_S)
    first = stack.webhook.firing(**fell)[0]
    assert first.at > stack.fell_at
    assert first.labels["severity"]
    assert first.labels["gen_ai_agent_name"] == "support"
    assert FELL in first.annotations["summary"]


def test_an_alert_leads_to_the_answers_that_fail(stack: Stack) -> None:
    """Its `answers_url`, at the pages over what that service stores."""
    fell = {"job": FALLING, CRITERION: FELL}
    assert stack.prometheus.wait_for(lambda _: stack.webhook.firing(**fell), ARRIVAL_LIMIT_S)
    url = stack.webhook.firing(**fell)[0].annotations["answers_url"]
    assert url.startswith(f"{PAGES}/answers?agent=support&criterion={FELL}&outcome=fail&")
    with served(stack.stored) as address, client_of(address) as client:
        page = client.get(url.removeprefix(PAGES))
    assert page.status_code == 200
    listed = re.findall(r"<td data-name=\"Verdicts\">(.*?)</td>", page.text)
    assert listed
    assert [verdicts for verdicts in listed if FELL not in verdicts] == []


def test_nobody_is_woken_by_a_healthy_run(stack: Stack) -> None:
    """In the same time the demo that stays as good has no alert, of whatever kind.

    But for its silence after its end: the programs beside it may run longer.
    """
    fired = [(item.name, dict(item.labels)) for item in stack.webhook.firing(job=HEALTHY)]
    assert [item for item in fired if item[0] != "AgentevalServiceSilent"] == []


def test_failing_answers_are_found_in_jaeger(stack: Stack) -> None:
    """By the score and the label of the run span, and by those of a result's own span, as many as
    are counted.
    """
    wanted = {semconv.criterion_score(FELL): "0", semconv.criterion_label(FELL): semconv.LABEL_FAIL}
    (failed,) = stack.prometheus.query(
        f'sum(last_over_time(agenteval_evaluation_results_total{{job="{FALLING}", {CRITERION}="{FELL}", '
        'gen_ai_evaluation_score_label="fail"}[10m]))'
    )
    actual = stack.jaeger.wait_for(
        lambda jaeger: (
            (traces := jaeger.traces(FALLING, tags=wanted))
            and len(traces) >= failed.value
            and traces
        ),
        ARRIVAL_LIMIT_S,
    )
    assert len(actual) == failed.value > 0
    result = {semconv.EVALUATION_NAME: "is_polite", semconv.SCORE_LABEL: semconv.LABEL_FAIL}
    spans = [span for trace in stack.jaeger.traces(SHOP, tags=result) for span in trace.spans]
    assert any(
        span.tags.get(semconv.SCORE_VALUE) == 0 and span.name == "evaluation is_polite"
        for span in spans
    )


@pytest.mark.parametrize("service", [FALLING, HEALTHY, REVIEWED, OTHERS, SHOP])
def test_jaeger_holds_nothing_against_the_traces(stack: Stack, service: str) -> None:
    """No warning of clock skew, no parent that is missing."""
    traces = stack.jaeger.traces(service)
    assert traces
    assert [warning for trace in traces for warning in trace.warnings()] == []
    assert [name for trace in traces for name in trace.orphans()] == []


CHOSEN = ((FALLING, FELL), (REVIEWED, "Coherence"), (HEALTHY, FELL), (OTHERS, FELL))
"""Services and criteria that an operator chooses, until a panel has something to show."""


def shipped() -> dict[str, str]:
    """Return the shipped dashboards."""
    folder = FOLDER / "grafana/dashboards"
    return {f"dashboards/{path.name}": path.read_text() for path in folder.glob("*.json")}


def panels() -> list[list[PanelQuery]]:
    """Every query of every shipped dashboard with its variables filled in, once for each choice.

    No criterion of these settings has a threshold that its mean is alerted on.
    """
    of_choices = [
        queries_of(
            shipped(),
            {
                "baseline": "1.0",
                "candidate": "2.0",
                "window": "1d",
                "job": job,
                "criterion": criterion,
            },
            interval="5s",
            range_="3m",
        )
        for job, criterion in CHOSEN
    ]
    return [
        list(same)
        for same in zip(*of_choices, strict=True)
        if "agenteval:threshold" not in same[0].expression
    ]


@pytest.mark.parametrize("panel", panels(), ids=lambda item: f"{item[0].dashboard}-{item[0].panel}")
def test_every_panel_shows_data(stack: Stack, panel: list[PanelQuery]) -> None:
    """Each query, as the panel sends it, gives something of this traffic."""
    if panel[0].kind == "loki":
        assert stack.loki.wait_for(
            lambda loki: any(loki.query(item.expression) for item in panel), ARRIVAL_LIMIT_S
        )
    else:
        at = stack.ended_at - 15
        assert any(stack.prometheus.query(item.expression, at=at) for item in panel), panel[
            0
        ].expression


def test_graphs_mark_when_versions_begin(stack: Stack) -> None:
    """Each version of a service once, and of the falling one the prompt that was released half-way."""
    marks = {mark.panel: mark.expression for mark in annotations_of(shipped(), {}, interval="2s")}
    begins = {}
    for name, expression in marks.items():
        until = stack.ended_at
        series = stack.prometheus.moments(expression, since=until - 150, until=until, step_s=2.0)
        for labels, moments in series:
            version = labels.get("service_version") or labels["gen_ai_prompt_version"]
            begins[name, labels["job"], version] = moments
    assert {key: len(moments) for key, moments in begins.items()} == dict.fromkeys(begins, 1)
    assert {version for name, job, version in begins if (name, job) == ("Releases", HEALTHY)} == {
        "1.0",
        "2.0",
    }
    ((second,),) = (
        moments
        for (name, job, version), moments in begins.items()
        if (name, job, version) == ("Prompt versions", FALLING, "2")
    )
    assert stack.fell_at < second < stack.ended_at


def test_an_exemplar_leads_to_the_trace_and_to_its_events(stack: Stack) -> None:
    """The trace id of a score's exemplar is in Jaeger, and its events are in Loki by name and trace
    id.
    """
    series = f'gen_ai_evaluation_score_bucket{{job="{FALLING}", {CRITERION}="{FELL}"}}'
    result = stack.prometheus.exemplars(series)
    assert result
    trace_id = min((exemplar for _, exemplar in result), key=lambda item: item.value).trace_id
    trace = stack.jaeger.wait_for(lambda jaeger: jaeger.trace(trace_id), ARRIVAL_LIMIT_S)
    requests = f'{{service_name="{FALLING}"}} | event_name="{semconv.EVENT_RESULT}" | trace_id="{trace_id}"'
    events = stack.loki.wait_for(lambda loki: loki.query(requests), ARRIVAL_LIMIT_S)
    assert FELL in {event.labels[CRITERION] for event in events}
    run = next(span for span in trace.spans if span.name.startswith("evaluation "))
    assert {event.labels["span_id"] for event in events} == set(run.parents)


def test_the_example_follows_an_exemplar(stack: Stack) -> None:
    """`examples/17_follow_an_exemplar.py` goes the same way, against these programs."""
    (output,) = finish(
        started(
            str(FOLDER.parent / "examples/17_follow_an_exemplar.py"),
            PROMETHEUS_URL=stack.prometheus.url,
            JAEGER_URL=f"http://{LOOPBACK}:{stack.jaeger.ports.query_http}",
            LOKI_URL=stack.loki.url,
        )
    )
    assert output.startswith(f"{FELL}: the lowest exemplar is 0.00, of trace ")
    assert "  span   evaluation support, " in output
    assert f"  event  {FELL}: fail (no_next_step)" in output
