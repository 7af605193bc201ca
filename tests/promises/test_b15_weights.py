"""B15: nobody outside chooses what is evaluated, or what weight it has."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from opentelemetry import propagate, trace
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider

from agenteval_otel import configure, flush, monitor
from agenteval_otel.capture.spans.forwarded import attributes_of
from agenteval_otel.config import default_pipeline
from agenteval_otel.config.sidecar import SidecarSettings
from agenteval_otel.engine.objectives.crossings import ObjectiveCrossing
from agenteval_otel.evaluators import ResponseHealth
from agenteval_otel.instrumentation.asgi import AgentEvalMiddleware
from agenteval_otel.models import EvaluationInput
from agenteval_otel.models.scoring.probability import Sampled
from agenteval_otel.semconv import EVENT_ANSWER, METRIC_WEIGHT, SCOPE_NAME
from agenteval_otel.sidecar.intake import Intake
from agenteval_otel.sidecar.journal import LOGS, TRACES
from agenteval_otel.testing import RecordedTelemetry
from tests.promises.figures import Recorder
from tests.promises.served import trace_request

RATE, CALLS = 0.05, 400
GOOD, BAD = "At nine o'clock we open the doors.", "I cannot help with that."
TINY = "ot=th:fffffffffffffe;rv:ffffffffffffff"
STATES = ("", TINY, "ot=th:0;rv:ffffffffffffff", "ot=th:8;rv:00000000000000")
LOWS = (1, 1 << 55, (1 << 64) - 1)

Ask = Callable[[bool, int, str], None]
"""Has a good or bad answer made below a trace id and a trace state of the client's."""


def in_fastapi(configured: dict[str, Any], agent: str = "support") -> Iterator[Ask]:
    """A host with OpenTelemetry's own propagation, as every web instrumentation has it."""
    configure(**configured)
    tracer, app = TracerProvider().get_tracer("web"), FastAPI()

    @monitor(agent=agent)
    def support(is_good: bool) -> str:
        return GOOD if is_good else BAD

    @app.get("/chat")
    def chat(good: bool, request: Request) -> str:
        context = propagate.extract(dict(request.headers))
        with tracer.start_as_current_span("GET /chat", context=context):
            return support(good)

    client = TestClient(app)
    yield lambda good, trace_id, state: client.get(
        "/chat", params={"good": good}, headers=headers_of(trace_id, state)
    ).raise_for_status()


def in_our_middleware(configured: dict[str, Any], agent: str = "support") -> Iterator[Ask]:
    """A host without OpenTelemetry: our own middleware reads the headers."""
    configure(**configured)
    app = FastAPI()

    @app.post("/chat")
    def chat(body: dict[str, bool]) -> dict[str, str]:
        return {"answer": GOOD if body["good"] else BAD}

    app.add_middleware(AgentEvalMiddleware, routes={"/chat": agent})
    client = TestClient(app)
    yield lambda good, trace_id, state: client.post(
        "/chat", json={"good": good}, headers=headers_of(trace_id, state)
    ).raise_for_status()


def in_the_sidecar(configured: dict[str, Any], agent: str = "support") -> Iterator[Ask]:
    """Spans of applications, whose ids and trace states came from their clients."""
    configure(**configured)
    intake = Intake(SidecarSettings(quiet_s=0.0))
    intake.start()

    def ask(good: bool, trace_id: int, state: str) -> None:
        request = ExportTraceServiceRequest.FromString(
            trace_request(trace_id, text=GOOD if good else BAD, agent=agent)
        )
        (span,) = request.resource_spans[0].scope_spans[0].spans
        span.trace_state = state
        intake.take(TRACES, request)

    yield ask
    intake.close(30.0)


ENTRY_POINTS = pytest.mark.parametrize(
    "entry_point", [in_fastapi, in_our_middleware, in_the_sidecar]
)


def headers_of(trace_id: int, state: str) -> dict[str, str]:
    if not trace_id:
        return {}
    found = {"traceparent": f"00-{trace_id:032x}-{os.urandom(8).hex()}-01"}
    return found | ({"tracestate": state} if state else {})


def settings_of(telemetry: RecordedTelemetry, **more: Any) -> dict[str, Any]:
    return {
        "evaluators": [ResponseHealth()],
        "storage": [telemetry.storage()],
        "load_shedding": {"enabled": False},
        **more,
    }


def random_id(low: int | None = None) -> int:
    number = int.from_bytes(os.urandom(16), "big") | 1 << 127
    return number if low is None else number >> 64 << 64 | low


def weights(telemetry: RecordedTelemetry) -> dict[str, float]:
    """What the metric says of how many answers pass and fail."""
    sums: Counter[str] = Counter()
    for point in telemetry.points(METRIC_WEIGHT.name):
        sums[point.attributes["gen_ai.evaluation.score.label"]] += point.value
    return dict(sums)


@ENTRY_POINTS
@pytest.mark.parametrize("state", STATES)
def test_one_request_moves_no_weight(
    entry_point: Callable[..., Iterator[Ask]],
    state: str,
    telemetry: RecordedTelemetry,
    promise: Recorder,
) -> None:
    """Beside 200 honest answers one of a client's with any trace state weighs as one of them."""
    for ask in entry_point(settings_of(telemetry, sample_rate=1.0)):
        for _ in range(200):
            ask(True, random_id(), "")
        ask(False, random_id((1 << 64) - 1), state)
    assert flush(30.0)
    found = weights(telemetry)
    promise("B15", figure=f"one request with any trace state: weight {found['fail']:g}")
    assert found == {"pass": 200.0, "fail": 1.0}


@ENTRY_POINTS
@pytest.mark.parametrize("low", LOWS)
def test_chosen_ids_are_evaluated_at_the_rate(
    entry_point: Callable[..., Iterator[Ask]],
    low: int,
    telemetry: RecordedTelemetry,
    promise: Recorder,
) -> None:
    """Of 400 ids that end alike, with trace states that ask for the same, as many are evaluated as
    of honest ones.
    """
    for ask in entry_point(settings_of(telemetry, sample_rate=RATE)):
        for number in range(CALLS):
            ask(True, random_id(low), STATES[number % 4])
    assert flush(30.0)
    evaluated = default_pipeline().accounting.outcomes()["evaluated"]
    sigma = math.sqrt(CALLS * RATE * (1 - RATE))
    promise("B15", figure=f"{CALLS} chosen ids at rate {RATE}: {CALLS * RATE:g} +- {5 * sigma:.0f}")
    assert abs(evaluated - CALLS * RATE) <= 5 * sigma
    assert weights(telemetry).get("pass", 0.0) == pytest.approx(evaluated / RATE)


@ENTRY_POINTS
def test_the_alarm_comes_as_without_it(
    entry_point: Callable[..., Iterator[Ask]],
    telemetry: RecordedTelemetry,
    promise: Recorder,
) -> None:
    """A breach is reported after as many failures whether a client has sent its trace state before
    or not.
    """
    needed: list[int] = []
    for agent, state in (("calm", ""), ("attacked", TINY)):
        crossings: list[ObjectiveCrossing] = []
        configured = settings_of(
            telemetry,
            sample_rate=1.0,
            criteria={
                "default": [{"name": "response_health", "objective": 0.9, "independent": True}]
            },
            on_breach=crossings.append,
        )
        for ask in entry_point(configured, agent):
            for _ in range(200):
                ask(True, random_id(), "")
            ask(True, random_id((1 << 64) - 1), state)
            assert flush(30.0)
            failures = 0
            while not crossings and failures < 60:
                ask(False, random_id(), "")
                failures += 1
                assert flush(30.0)
            needed.append(failures)
    promise("B15", figure=f"alarm after {needed[1]} failures, without the request {needed[0]}")
    assert needed[0] == needed[1] < 60


HOSTILE = (
    {"probability": 1e-300},
    {"probability": 1e-9},
    {"probability": 1.0, "upstream": 1e-12},
    {"probability": 0.01, "upstream": 0.01},
    {"probability": 1.0, "least": 1e-300},
    {"probability": 5e-324, "least": 5e-324, "upstream": 5e-324},
)


@pytest.mark.parametrize("stated", HOSTILE)
def test_forwarded_answers_state_no_weight_that_is_not_believed(
    stated: dict[str, float], telemetry: RecordedTelemetry, promise: Recorder
) -> None:
    """What an application says of its sampling is believed down to `upstream_least`; below that its
    answer has no weight, and the others keep theirs.
    """
    configure(**settings_of(telemetry, sample_rate=1.0))
    intake = Intake(SidecarSettings(quiet_s=0.0))
    intake.start()
    request = ExportLogsServiceRequest()
    scope_logs = request.resource_logs.add().scope_logs.add()
    scope_logs.scope.name = SCOPE_NAME
    honest = {"probability": 1.0, "reason": "ratio", "randomness": 1}
    answers = [(GOOD, honest)] * 20 + [(BAD, honest | stated)]
    for response, sampled in answers:
        value = EvaluationInput(agent="support", prompt="When?", response=response)
        record = scope_logs.log_records.add(event_name=EVENT_ANSWER, time_unix_nano=10**18)
        record.trace_id, record.span_id = os.urandom(16), os.urandom(8)
        for name, attribute in attributes_of(value, Sampled(**sampled)).items():
            record.attributes.add(key=name).value.string_value = (
                attribute if isinstance(attribute, str) else json.dumps(attribute)
            )
    intake.take(LOGS, request)
    assert intake.close(30.0)
    assert flush(30.0)
    found = weights(telemetry)
    assert all(map(math.isfinite, found.values()))
    believed = "upstream" not in stated and stated["probability"] == 1.0
    promise("B15", figure="forwarded probabilities below 0.001: weight 0, the others unchanged")
    assert found == {"pass": 20.0, "fail": 1.0 if believed else 0.0}
    counted = default_pipeline().accounting.failures.get("probability:upstream_too_small", 0)
    assert counted == (0 if believed else 1)


def test_a_loud_client_is_not_the_hosts_span() -> None:
    """The headers of the tests above reach the current span's context, so that they prove something."""
    context = propagate.extract(headers_of(random_id(7), TINY))
    span_context = trace.get_current_span(context).get_span_context()
    assert span_context.trace_state.get("ot") == TINY.removeprefix("ot=")
    assert span_context.trace_id & ((1 << 64) - 1) == 7
