"""What a program with `@monitor` shows: the agent span in Jaeger has its scores."""

from __future__ import annotations

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


@pytest.mark.parametrize("providers", ["host", "none"])
def test_the_agent_span_in_jaeger_carries_its_scores(
    collector_binary: Path, jaeger: Jaeger, tmp_path: Path, providers: str
) -> None:
    """Jaeger finds agent spans by the label of a criterion: each has the scores, and no other span
    of its trace has them.
    """
    service = f"agent-span-{providers}"
    shipped = Collector(
        collector_binary,
        tmp_path,
        config=SHIPPED,
        environment={"COLLECTOR_TRACES_ENDPOINT": jaeger.otlp_endpoint},
    )
    with running(shipped) as collector:
        environment = {
            "OTEL_SERVICE_NAME": service,
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.grpc_endpoint,
        }
        assert finish(
            started("-m", "tests.backends.applications", "watched", providers, **environment)
        ) == [""]
        for label, count, score in (
            (semconv.LABEL_FAIL, TOO_LONG, 0.0),
            (semconv.LABEL_PASS, ANSWERS - TOO_LONG, 1.0),
        ):
            tags = {
                semconv.OPERATION_NAME: semconv.OPERATION_INVOKE_AGENT,
                semconv.criterion_label(CRITERION): label,
            }
            jaeger.wait_for(
                lambda seen, tags=tags, count=count: (
                    [len(trace.spans) for trace in seen.traces(service, tags=tags)] == [1] * count
                ),
                ARRIVAL_LIMIT_S,
            )
            traces = jaeger.traces(service, tags=tags)
            for trace in traces:
                [agent] = trace.spans
                assert (agent.name, agent.parents) == ("invoke_agent watched", ())
                assert scores_of(agent)[semconv.criterion_score(CRITERION)] == score
                assert semconv.OVERALL_SCORE in agent.tags
                assert trace.warnings() == []


def scores_of(span: JaegerSpan) -> dict[str, object]:
    """The scores and labels of a span, by the names of their attributes."""
    return {
        name: value
        for name, value in span.tags.items()
        if re.fullmatch(r"gen_ai\.evaluation\..*(score|label)", name)
    }
