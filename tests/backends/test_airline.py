"""Real conversations of an airline agent, through @monitor, into a real Collector."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import EvaluationInput, Score, annotate, monitor
from agenteval_otel.evaluators import Func, KeywordCoverage, ResponseHealth, RuleBased
from agenteval_otel.pipeline import Pipeline, PoolDispatcher
from agenteval_otel.pipeline.load_shedding import LoadSheddingSettings
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.storage import OtlpStorageProvider

from .collector import Collector
from .sdk import Sdk, sdk_to

pytestmark = [pytest.mark.backend, pytest.mark.live, pytest.mark.shared]

Messages = list[dict[str, Any]]
CRITERIA = ("response_health", "short_enough", "courtesy", "calls_or_answers")


def calls_or_answers(evaluation_input: EvaluationInput) -> Score:
    acted = bool(evaluation_input.tool_calls) or bool(evaluation_input.response_text.strip())
    return Score(value=acted, reason_code=None if acted else "idle")


def evaluators() -> list[Any]:
    return [
        ResponseHealth(),
        RuleBased(rules=[{"criterion": "short_enough", "type": "length", "max": 1200}]),
        KeywordCoverage(criterion_name="courtesy", expected_keywords=["please", "thank"], threshold=0.5),
        Func.of(calls_or_answers),
    ]


def turns(shared: Path) -> Iterator[tuple[str, Messages, dict[str, Any]]]:
    """Every assistant turn: its conversation, what stood before it, and what the agent said."""
    for line in (shared / "data" / "tau_airline_sample.jsonl").read_text().split("\n"):
        if not line:
            continue
        conversation = json.loads(line)
        messages = conversation["messages"]
        for position, message in enumerate(messages):
            if message["role"] == "assistant":
                yield conversation["id"], messages[:position], message


class Agent:
    """The recorded agent: says at each turn what it said then; every other conversation as a stream of words."""

    def __init__(self, pipeline: Pipeline) -> None:
        decorate = monitor(agent="airline", evaluators=evaluators(), pipeline=pipeline)
        self.say, self.stream = decorate(self._say), decorate(self._stream)

    async def _say(self, messages: Messages, recorded: dict[str, Any], conversation: str) -> dict[str, Any]:
        annotate(conversation_id=conversation, model="recorded")
        return recorded

    async def _stream(
        self, messages: Messages, recorded: dict[str, Any], conversation: str
    ) -> AsyncGenerator[str, None]:
        annotate(conversation_id=conversation, model="recorded", tool_calls=recorded.get("tool_calls", []))
        for word in (recorded.get("content") or "").split(" "):
            yield word + " "


async def live_traffic(shared: Path, agent: Agent, sdk: Sdk, pipeline: Pipeline) -> Counter[str]:
    tracer = sdk.tracers.get_tracer("airline-app")
    calls: Counter[str] = Counter()
    last = None
    for number, (conversation, before, recorded) in enumerate(turns(shared)):
        if conversation != last and number % 7 == 0:
            # The application's span processor holds 2,048 spans; live traffic is slower than a replay.
            await asyncio.to_thread(pipeline.flush, 20.0)
        last = conversation
        with tracer.start_as_current_span("turn"):
            if len(before) % 4 < 2 or not recorded.get("content"):
                assert await agent.say(before, recorded, conversation) is recorded
                calls["plain"] += 1
            else:
                words = [word async for word in agent.stream(before, recorded, conversation)]
                assert "".join(words) == recorded["content"] + " "
                calls["stream"] += 1
    return calls


@pytest.fixture(scope="module")
def seen(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The whole replay, once: what was called, what the accounting says, what the Collector received."""
    shared = Path(__file__).resolve().parents[3] / "shared"
    if not shared.is_dir():
        pytest.skip("needs the recorded data in ../shared")
    collector: Collector = request.getfixturevalue("collector")
    service = "airline-test"
    with sdk_to(collector, service=service) as sdk:
        # Like most applications this one sets up tracing only: events and metrics take the OTLP endpoint.
        storage = OtlpStorageProvider(endpoint=collector.grpc_endpoint, tracer_provider=sdk.tracers)
        pipeline = Pipeline(
            sampler=RatioSampler(),
            evaluators=evaluators(),
            storage=[storage],
            dispatcher=PoolDispatcher(),
            load_shedding=LoadSheddingSettings(enabled=False),
        )
        calls = asyncio.run(live_traffic(shared, Agent(pipeline), sdk, pipeline))
        assert pipeline.flush(60.0)
        assert pipeline.shutdown(10.0)
    total = sum(calls.values())
    collector.wait_for(lambda seen: len(seen.spans(service)) >= 2 * total, 30.0)
    collector.wait_for(lambda seen: len(seen.logs(service)) >= len(CRITERIA) * total, 30.0)
    collector.wait_for(lambda seen: seen.metric("gen_ai.evaluation.score", service), 30.0)
    return {
        "calls": calls, "total": total, "accounting": pipeline.accounting, "spans": collector.spans(service),
        "logs": collector.logs(service), "collector": collector, "service": service,
    }  # fmt: skip


def test_the_accounting_adds_up_exactly(seen: dict[str, Any]) -> None:
    """Every call is one outcome, every criterion of every response one result."""
    outcomes = seen["accounting"].outcomes()
    assert outcomes["evaluated"] == sum(outcomes.values()) == seen["total"]
    assert seen["total"] > 900
    assert seen["calls"]["stream"] > 200
    assert seen["accounting"].results == {"scored": seen["total"] * len(CRITERIA), "skipped": 0, "failed": 0}
    assert seen["accounting"].failures == {}


def test_one_run_span_stands_under_each_evaluated_span(seen: dict[str, Any]) -> None:
    """In the Collector each turn's span has one child that carries every criterion's score and label."""
    turns = {span.span_id: span for span in seen["spans"] if span.name == "turn"}
    runs = [span for span in seen["spans"] if span.name == "evaluation airline"]
    assert len(runs) == len(turns) == seen["total"]
    assert {run.parent_span_id for run in runs} == set(turns)
    for run in runs:
        turn = turns[run.parent_span_id]
        assert run.trace_id == turn.trace_id
        assert run.attributes["gen_ai.operation.name"] == "evaluation"
        assert run.attributes["gen_ai.evaluation.module"] == "airline"
        assert 0.0 <= run.attributes["agenteval.evaluation.overall_score"] <= 1.0
        for criterion in CRITERIA:
            assert isinstance(run.attributes[f"gen_ai.evaluation.{criterion}.score"], float)
            assert run.attributes[f"gen_ai.evaluation.{criterion}.label"] in ("pass", "fail")
        assert turn.attributes["agenteval.evaluation.sampled"] is True
        assert list(turn.attributes["agenteval.evaluation.criteria"]) == list(CRITERIA)


def test_one_event_a_criterion_carries_the_right_ids(seen: dict[str, Any]) -> None:
    """Each result is one event in the context of its turn's span, with a score that the run span repeats."""
    events = [log for log in seen["logs"] if log.event_name == "gen_ai.evaluation.result"]
    assert len(events) == seen["total"] * len(CRITERIA)
    runs = {run.parent_span_id: run for run in seen["spans"] if run.name == "evaluation airline"}
    of_span: dict[str, set[str]] = {}
    for event in events:
        run = runs[event.span_id]
        name = event.attributes["gen_ai.evaluation.name"]
        assert event.trace_id == run.trace_id
        score = run.attributes[f"gen_ai.evaluation.{name}.score"]
        assert event.attributes["gen_ai.evaluation.score.value"] == score
        assert event.attributes["gen_ai.conversation.id"].startswith("airline-")
        assert event.time_unix_nano > 0
        assert event.severity_number == 9
        of_span.setdefault(event.span_id, set()).add(name)
    assert all(names == set(CRITERIA) for names in of_span.values())


def test_the_histogram_has_exemplars_of_real_traces(seen: dict[str, Any]) -> None:
    """The scores' histogram counts every result, and its exemplars lead to turns that exist."""
    collector, service = seen["collector"], seen["service"]
    metric = collector.metric("gen_ai.evaluation.score", service)
    exports = [export for export in collector.metrics(service) if export.name == "gen_ai.evaluation.score"]
    traces = {span.trace_id for span in seen["spans"] if span.name == "turn"}
    for criterion in CRITERIA:
        points = [point for point in metric.points if point.attributes["gen_ai.evaluation.name"] == criterion]
        assert sum(point.count for point in points) == seen["total"]
        # An exemplar is sent once, with the export after its measurement.
        exemplars = [
            exemplar
            for export in exports
            for point in export.points if point.attributes["gen_ai.evaluation.name"] == criterion
            for exemplar in point.exemplars
        ]  # fmt: skip
        assert exemplars
        assert {exemplar.trace_id for exemplar in exemplars} <= traces
    assert metric.unit == "1"
    assert metric.points[0].bounds == (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)


def test_outcomes_and_counters_arrive_as_metrics(seen: dict[str, Any]) -> None:
    """Outcomes, pass and fail counts and the queue stand in the metrics under their names."""
    collector, service = seen["collector"], seen["service"]
    responses = collector.metric("agenteval.responses", service)
    by_outcome = {point.attributes["agenteval.outcome"]: point.value for point in responses.points}
    assert by_outcome["evaluated"] == seen["total"]
    assert by_outcome["dropped_queue_full"] == 0
    results = collector.metric("agenteval.evaluation.results", service)
    counted = Counter({point.attributes["gen_ai.evaluation.name"]: 0 for point in results.points})
    for point in results.points:
        counted[point.attributes["gen_ai.evaluation.name"]] += int(point.value)
    assert counted == dict.fromkeys(CRITERIA, seen["total"])
    for name in (
        "queue.size",
        "queue.max_bytes",
        "queue.bytes",
        "last_success",
        "evaluation.lag",
        "evaluation.duration",
    ):
        assert collector.metric(f"agenteval.{name}", service) is not None, name
