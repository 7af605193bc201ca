"""Real conversations of an airline agent, through @monitor, into a real Collector."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from agenteval_otel import EvaluationInput, Score, annotate, monitor
from agenteval_otel.evaluators import Func, KeywordCoverage, ResponseHealth, RuleBased
from agenteval_otel.pipeline import Pipeline
from agenteval_otel.storage import OtlpStorageProvider
from tests.golden import lines
from tests.promises.bench import pipeline_of

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


def turns() -> Iterator[tuple[str, Messages, dict[str, Any]]]:
    """Every assistant turn: its conversation, what stood before it, and what the agent said."""
    for conversation in lines("tau_airline_sample.jsonl"):
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


async def live_traffic(agent: Agent, sdk: Sdk, pipeline: Pipeline) -> Counter[str]:
    tracer = sdk.tracers.get_tracer("airline-app")
    calls: Counter[str] = Counter()
    last = None
    for number, (conversation, before, recorded) in enumerate(turns()):
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


def test_a_replay_arrives_whole(collector: Collector) -> None:
    """Each turn's span has one run span with every score, and an event for each criterion; all sums add up."""
    service = "airline-test"
    with sdk_to(collector, service=service) as sdk:
        # Like most applications this one sets up tracing only: events and metrics take the OTLP endpoint.
        storage = OtlpStorageProvider(endpoint=collector.grpc_endpoint, tracer_provider=sdk.tracers)
        pipeline = pipeline_of(*evaluators(), storage=[storage], sheds=False)
        calls = asyncio.run(live_traffic(Agent(pipeline), sdk, pipeline))
        assert pipeline.flush(60.0)
        assert pipeline.shutdown(10.0)
    total, outcomes = calls.total(), pipeline.accounting.outcomes()
    assert outcomes["evaluated"] == sum(outcomes.values()) == total > 900
    assert calls["stream"] > 200
    assert pipeline.accounting.results == {"scored": total * len(CRITERIA), "skipped": 0, "failed": 0}
    assert pipeline.accounting.failures == {}

    spans = collector.wait_for(lambda seen: len(items := seen.spans(service)) >= 2 * total and items, 30.0)
    turns = {span.span_id: span for span in spans if span.name == "turn"}
    runs = {span.parent_span_id: span for span in spans if span.name == "evaluation airline"}
    assert len(spans) == 2 * total
    assert runs.keys() == turns.keys()
    for span_id, run in runs.items():
        turn = turns[span_id]
        assert run.trace_id == turn.trace_id
        assert run.attributes["gen_ai.operation.name"] == "evaluation"
        assert run.attributes["gen_ai.evaluation.module"] == "airline"
        assert 0.0 <= run.attributes["agenteval.evaluation.overall_score"] <= 1.0
        assert {run.attributes[f"gen_ai.evaluation.{name}.label"] for name in CRITERIA} <= {"pass", "fail"}
        assert turn.attributes["agenteval.evaluation.sampled"] is True
        assert list(turn.attributes["agenteval.evaluation.criteria"]) == list(CRITERIA)

    events = collector.wait_for(lambda seen: len(items := seen.logs(service)) >= len(CRITERIA) * total and items, 30.0)
    names = {(event.span_id, event.attributes["gen_ai.evaluation.name"]) for event in events}
    assert names == {(span_id, name) for span_id in turns for name in CRITERIA}
    assert len(events) == len(names)
    for event in events:
        run, name = runs[event.span_id], event.attributes["gen_ai.evaluation.name"]
        assert (event.event_name, event.trace_id) == ("gen_ai.evaluation.result", run.trace_id)
        assert event.attributes["gen_ai.evaluation.score.value"] == run.attributes[f"gen_ai.evaluation.{name}.score"]
        assert event.attributes["gen_ai.conversation.id"].startswith("airline-")

    metric = collector.wait_for(lambda seen: seen.metric("gen_ai.evaluation.score", service), 30.0)
    counts = Counter[str]()
    for point in metric.points:
        counts[point.attributes["gen_ai.evaluation.name"]] += point.count
    assert counts == dict.fromkeys(CRITERIA, total)
