"""B16: names that clients make up neither fill the memory nor take the place of names that the
settings have.
"""

from __future__ import annotations

import json
import os
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.promises.figures import Recorder, sized
from tests.promises.receiver import Receiver
from tests.promises.served import Served, add_span, new_trace_id
from tests.promises.sidecars import ANSWER, counted, points

MADE_UP = 100_000
MOST_MB = 10.0
WARM = 25_000
AT_ONCE = 250
FEEDBACK = 10_000
ANSWERS = 20
MOST_SERIES = 3_000
SETTINGS = """
sidecar: {quiet_s: 0.2, parent_wait_s: 0.4}
sample_rate: RATE
load_shedding: {enabled: false}
evaluators: [ResponseHealth]
agents:
  clerk: {sample_rate: 1.0}
  warm: {sample_rate: 1.0}
"""
OF_CLERK = {
    "gen_ai.evaluation.score",
    "agenteval.evaluation.results",
    "agenteval.evaluation.weight",
    "agenteval.evaluation.weight_squared",
    "agenteval.evaluation.weighted_score",
    "agenteval.evaluation.weighted_score_w2",
    "agenteval.evaluation.weighted_score_squared_w2",
    "agenteval.evaluation.lag",
    "agenteval.answers",
    "agenteval.responses",
}


def answers(*agents: tuple[str, str]) -> bytes:
    """One answer of each agent, of the service and with the model that are named for it."""
    request = ExportTraceServiceRequest()
    for agent, made_up in agents:
        group = request.resource_spans.add()
        group.resource.attributes.add(key="service.name").value.string_value = made_up
        add_span(
            group.scope_spans.add().spans,
            new_trace_id(),
            int.from_bytes(os.urandom(8)),
            name="invoke_agent",
            attributes=ANSWER | {"gen_ai.agent.name": agent, "gen_ai.request.model": made_up},
        )
    return request.SerializeToString()


def post(served: Served, body: bytes, path: str = "/v1/traces", **headers: str) -> None:
    """Send until it is taken, as a client does that honours 429."""
    never, deadline = threading.Event(), time.monotonic() + 60.0
    while (status := served.post(body, path, **headers).status) not in (200, 202):
        assert status == 429, served.told[-2000:]
        assert time.monotonic() < deadline
        never.wait(0.1)


def has_counted(receiver: Receiver, answers: int) -> bool:
    return counted(receiver, "agenteval.responses") == answers


def flood(tmp_path: Path, receiver: Receiver, rate: str, made_up: int) -> tuple[float, float, int]:
    """Send the made-up names, then the configured agent's answers; return megabytes and series."""
    settings = SETTINGS.replace("RATE", rate)
    every = {"OTEL_METRIC_EXPORT_INTERVAL": "500"}
    with Served(tmp_path, settings=settings, endpoint=receiver.endpoint, **every) as served:
        pace = 25_000 if rate == "0.0" else 2_500
        # What fills once, whatever names come: 10,000 traces and 40,000 ids of answers are remembered.
        for number in range(0, WARM + made_up, AT_ONCE):
            if number == WARM:
                before = served.rss_bytes
            numbers = range(number, number + AT_ONCE)
            made = [(f"agent-{n}", f"service-{n}") for n in numbers]
            post(served, answers(*(made if number >= WARM else [("warm", "shop")] * AT_ONCE)))
            sent = number + AT_ONCE
            if sent % pace == 0:  # what waits is bounded elsewhere, and is no name
                served.wait_for(partial(has_counted, receiver, sent), "every count", 120.0)
        for number in range(ANSWERS):
            post(served, answers(("clerk", f"service of clerk {number % 2}")))
        evaluated = {"gen_ai.agent.name": "clerk", "agenteval.outcome": "evaluated"}
        served.wait_for(
            lambda: counted(receiver, "agenteval.responses", evaluated) == ANSWERS,
            "the agent's answers",
        )
        after = served.rss_bytes
        assert served.terminate() == 0
        assert served.told.count("event='names_overflow' part='agent'") == 1
    seen = {name for name, attributes, _ in points(receiver) if "clerk" in attributes.values()}
    assert seen == OF_CLERK
    scored = {"gen_ai.agent.name": "clerk", "gen_ai.evaluation.name": "response_health"}
    assert counted(receiver, "agenteval.evaluation.results", scored) == ANSWERS
    assert counted(receiver, "agenteval.names.overflow", {"agenteval.name.kind": "agent"}) > 0
    return before / 2**20, after / 2**20, len(list(points(receiver)))


@pytest.mark.parametrize(
    ("rate", "made_up"),
    [
        pytest.param("0.0", MADE_UP, id="unsampled"),
        pytest.param("1.0", sized(20_000, MADE_UP), id="evaluated", marks=pytest.mark.sized),
    ],
)
def test_made_up_agents_services_and_models(
    rate: str, made_up: int, tmp_path: Path, receiver: Receiver, promise: Recorder
) -> None:
    """100,000 agents of as many services: the agent of the settings is evaluated 20 of 20 times and
    is in every metric, and memory grows by at most 10 MB. Where all answers are evaluated no count
    is lost, whatever has a series.
    """
    before, after, series = flood(tmp_path, receiver, rate, made_up)
    if rate == "1.0":
        total = WARM + made_up + ANSWERS
        assert counted(receiver, "agenteval.evaluation.results") == total
    promise(
        "B16",
        figure=f"{made_up:,} made-up agents, services and models at the rate {rate}: "
        f"{after - before:+.1f} MB, {series:,} series; the configured agent {ANSWERS} of {ANSWERS}",
    )
    assert after - before <= MOST_MB
    assert series <= MOST_SERIES


def test_made_up_criteria_of_feedback(
    tmp_path: Path, receiver: Receiver, promise: Recorder
) -> None:
    """10,000 made-up criteria and agents at `/v1/feedback`: the criteria of evaluators are in the
    metrics, also where they come later, and series are bounded.
    """
    settings = SETTINGS.replace("RATE", "1.0")
    with Served(tmp_path, settings=settings, endpoint=receiver.endpoint) as served:
        for start in range(0, FEEDBACK, 500):
            items = [
                {
                    "trace_id": os.urandom(16).hex(),
                    "span_id": os.urandom(8).hex(),
                    "name": f"made-up-{number}",
                    "agent": f"agent-{number}",
                    "thumbs": "down",
                }
                for number in range(start, start + 500)
            ]
            body = json.dumps(items).encode()
            post(served, body, "/v1/feedback", Content_Type="application/json")
        results = "agenteval.evaluation.results"
        served.wait_for(lambda: counted(receiver, results) == FEEDBACK, "the feedback", 120.0)
        for _ in range(ANSWERS):
            post(served, answers(("clerk", "shop")))
        real = {"gen_ai.evaluation.name": "response_health", "gen_ai.agent.name": "clerk"}
        served.wait_for(lambda: counted(receiver, results, real) == ANSWERS, "the real criterion")
        assert served.terminate() == 0
    criteria = {found.get("gen_ai.evaluation.name") for _, found, _ in points(receiver)}
    series = len(list(points(receiver)))
    promise(
        "B16",
        figure=f"{FEEDBACK:,} made-up criteria of feedback: {len(criteria) - 1} criteria in the "
        f"metrics, {series:,} series",
    )
    assert counted(receiver, results) == FEEDBACK + ANSWERS
    assert len(criteria) <= 100
    assert series <= MOST_SERIES
