"""What a program with `@monitor` shows: the agent span in Jaeger has its scores, and storage ends no telemetry."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from agenteval_otel import semconv

from .applications import WATCHED_ANSWERS as ANSWERS
from .collector import Collector
from .fixtures import running
from .jaeger import Jaeger, JaegerSpan
from .programs import finish, started
from .sdk import SHIPPED

pytestmark = pytest.mark.backend

ARRIVAL_LIMIT_S = 30.0
TOO_LONG = ANSWERS // 4
CRITERION = "short_enough"


def run_watched(collector: Collector, service: str, *arguments: str) -> None:
    """The application, from its start to its end; it says nothing on the way."""
    environment = {"OTEL_SERVICE_NAME": service, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.grpc_endpoint}
    assert finish(started("-m", "tests.backends.applications", "watched", *arguments, **environment)) == [""]


@pytest.mark.parametrize("providers", ["host", "none"])
def test_the_agent_span_in_jaeger_carries_its_scores(
    collector_binary: Path, jaeger: Jaeger, tmp_path: Path, providers: str
) -> None:
    """Jaeger finds agent spans by the label of a criterion; each has the scores, and ended before its evaluation."""
    service = f"agent-span-{providers}"
    shipped = Collector(
        collector_binary, tmp_path, config=SHIPPED, environment={"COLLECTOR_TRACES_ENDPOINT": jaeger.otlp_endpoint}
    )
    with running(shipped) as collector:
        run_watched(collector, service, providers)
        for label, count, score in ((semconv.LABEL_FAIL, TOO_LONG, 0.0), (semconv.LABEL_PASS, ANSWERS - TOO_LONG, 1.0)):
            tags = {semconv.OPERATION_NAME: semconv.OPERATION_INVOKE_AGENT, semconv.criterion_label(CRITERION): label}
            jaeger.wait_for(
                lambda seen, tags=tags, count=count: (
                    [len(trace.spans) for trace in seen.traces(service, tags=tags)] == [2] * count
                ),
                ARRIVAL_LIMIT_S,
            )
            traces = jaeger.traces(service, tags=tags)
            for trace in traces:
                agent, run = sorted(trace.spans, key=lambda span: span.name, reverse=True)
                assert (agent.name, agent.parents) == ("invoke_agent watched", ())
                assert (run.name, run.parents) == ("evaluation watched", (agent.span_id,))
                assert scores_of(agent) == scores_of(run)
                assert scores_of(agent)[semconv.criterion_score(CRITERION)] == score
                assert agent.start_us + agent.duration_us <= run.start_us
                assert trace.warnings() == []


@pytest.mark.parametrize("providers", ["host", "none"])
def test_storage_in_a_file_ends_no_telemetry(collector: Collector, tmp_path: Path, providers: str) -> None:
    """With `storage: [{type: json_file}]` each answer is in the file, and its spans, events and metrics arrive too."""
    service, file = f"json-file-{providers}", tmp_path / "evaluations.jsonl"
    run_watched(collector, service, providers, str(file))

    stored = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(stored) == ANSWERS
    criteria = {result["criterionName"] for answer in stored for result in answer["results"]}
    assert CRITERION in criteria

    collector.wait_for(lambda seen: len(seen.logs(service)) >= ANSWERS * len(criteria), ARRIVAL_LIMIT_S)
    collector.wait_for(lambda seen: len(seen.spans(service)) >= 2 * ANSWERS, ARRIVAL_LIMIT_S)
    events, spans = collector.logs(service), collector.spans(service)
    assert {event.name for event in events} == {semconv.EVENT_RESULT}
    assert len(events) == ANSWERS * len(criteria)
    agents = {span.span_id: span for span in spans if span.name == "invoke_agent watched"}
    assert (len(agents), len(spans)) == (ANSWERS, 2 * ANSWERS)
    assert {event.span_id for event in events} == agents.keys()
    labels = [span.attributes[semconv.criterion_label(CRITERION)] for span in agents.values()]
    assert labels.count(semconv.LABEL_FAIL) == TOO_LONG
    scores = collector.wait_for(lambda seen: seen.metric("gen_ai.evaluation.score", service), ARRIVAL_LIMIT_S)
    assert sum(point.count for point in scores.points) == ANSWERS * len(criteria)


def scores_of(span: JaegerSpan) -> dict[str, object]:
    """The scores and labels of a span, by the names of their attributes."""
    return {
        name: value for name, value in span.tags.items() if re.fullmatch(r"gen_ai\.evaluation\..*(score|label)", name)
    }
