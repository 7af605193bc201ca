"""An airline conversation scored as a whole, in Jaeger: live by the decorator, and from spans by
the sidecar.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from agenteval_otel import EvaluationInput, monitor
from agenteval_otel.capture.assembly.conversations import ConversationSettings
from agenteval_otel.engine.capabilities.conversations import Conversations
from agenteval_otel.evaluators import Repetition, ToolLoops
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.storage import OtlpStorageProvider
from tests.pipelines import pipeline_with
from tests.promises.served import messages

from .fixtures import running
from .jaeger import Jaeger, JaegerSpan
from .sidecar import Sidecar

pytestmark = pytest.mark.backend

LIMIT_S = 30.0
ID = "airline-09-2"
EVALUATORS: list[Any] = ["Repetition", {"type": "ToolLoops", "evaluates": "conversation"}]


@pytest.fixture
def turns(shared: Path) -> list[EvaluationInput]:
    rows = map(json.loads, (shared / "data" / "tau_airline_sample.jsonl").read_text().splitlines())
    row = next(row for row in rows if row["id"] == ID)
    return [
        turn
        for turn in EvaluationInput(conversation=row["messages"]).conversation or ()
        if turn.response is not None
    ]


def check(jaeger: Jaeger, service: str, turns: list[EvaluationInput], evaluating: str) -> None:
    """The run span is in the last turn's trace, below its answer, with a link to each turn's; the
    scores are right.
    """
    tags = {"gen_ai.conversation.id": ID, "gen_ai.operation.name": "evaluation"}
    jaeger.wait_for(lambda seen: bool(seen.traces(evaluating, tags=tags)), LIMIT_S)
    agents: dict[str, tuple[str, JaegerSpan]] = {}
    for trace in jaeger.traces(service):
        agents |= {
            span.span_id: (trace.trace_id, span)
            for span in trace.spans
            if span.name.startswith("invoke_agent")
        }
    assert len(agents) == len(turns)
    ((trace_id, run),) = [
        (trace.trace_id, span)
        for trace in jaeger.traces(evaluating, tags=tags)
        for span in trace.spans
        if span.name.startswith("evaluation ")
    ]
    last = max(agents.values(), key=lambda item: item[1].start_us)
    assert (trace_id, run.parents) == (last[0], (last[1].span_id,))
    ordered = sorted(agents.values(), key=lambda item: item[1].start_us)
    assert list(run.links) == [(of, span.span_id) for of, span in ordered if span is not last[1]]
    assert run.tags["agenteval.conversation.turns"] == len(turns)
    assert run.tags["gen_ai.evaluation.tool_loops.score"] == pytest.approx(18 / 23)
    assert run.tags["gen_ai.evaluation.tool_loops.label"] == "fail"
    assert run.tags["gen_ai.evaluation.repetition.score"] == pytest.approx(5 / 6)


def test_the_decorators_conversation_is_scored_in_jaeger(
    jaeger: Jaeger, turns: list[EvaluationInput], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each turn is a trace of its own; the whole stands in the last one."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "airline-live")
    storage = OtlpStorageProvider(
        endpoint=f"http://{jaeger.otlp_endpoint}", signals=frozenset({"traces"})
    )
    pipeline = pipeline_with(
        sampler=RatioSampler(),
        evaluators=(Repetition(), ToolLoops(evaluates="conversation")),
        storage=(storage,),
        capabilities=(Conversations.made_by(ConversationSettings()),),
    )

    @monitor(
        agent="airline", pipeline=pipeline, capture=lambda arguments, answer: arguments["facts"]
    )
    def answer(prompt: str | None, facts: dict[str, Any]) -> str:
        return str(facts["response"])

    for number, turn in enumerate(turns):
        answer(
            turn.prompt,
            {
                "response": turn.response,
                "conversation_id": ID,
                "conversation_ends": number == len(turns) - 1,
                "tool_calls": [call.model_dump(exclude={"id"}) for call in turn.tool_calls or ()],
            },
        )
    assert pipeline.shutdown(20.0)
    check(jaeger, "airline-live", turns, "airline-live")


def test_a_conversation_of_spans_is_scored_by_the_sidecar(
    jaeger: Jaeger, turns: list[EvaluationInput], tmp_path: Path
) -> None:
    """Another process's spans, of the conventions: an agent and its tools for each turn, one id for
    all.
    """
    settings = {
        "evaluators": EVALUATORS,
        "conversations": {"settle_s": 0.5},
        "sidecar": {"quiet_s": 0.3},
        "telemetry": {"signals": ["traces"]},
    }
    with running(Sidecar(tmp_path, settings, endpoint=f"http://{jaeger.otlp_endpoint}")) as sidecar:
        provider = TracerProvider(resource=Resource.create({"service.name": "airline-spans"}))
        for endpoint in (f"http://{jaeger.otlp_endpoint}", sidecar.grpc_endpoint):
            provider.add_span_processor(
                SimpleSpanProcessor(OTLPSpanExporter(endpoint=endpoint, insecure=True))
            )
        tracer = provider.get_tracer("an-agent-library")
        for number, turn in enumerate(turns):
            with tracer.start_as_current_span("invoke_agent airline") as span:
                span.set_attributes(
                    {
                        "gen_ai.operation.name": "invoke_agent",
                        "gen_ai.agent.name": "airline",
                        "gen_ai.conversation.id": ID,
                        "agenteval.conversation.ends": number == len(turns) - 1,
                        "gen_ai.input.messages": messages("user", turn.prompt or ""),
                        "gen_ai.output.messages": messages("assistant", turn.response or ""),
                    }
                )
                for call in turn.tool_calls or ():
                    with tracer.start_as_current_span(f"execute_tool {call.name}") as tool:
                        tool.set_attributes(
                            {
                                "gen_ai.operation.name": "execute_tool",
                                "gen_ai.tool.name": call.name,
                                "gen_ai.tool.call.arguments": str(call.arguments),
                                "gen_ai.tool.call.result": str(call.result),
                            }
                        )
        provider.shutdown()
        check(jaeger, "airline-spans", turns, "agenteval-sidecar")
