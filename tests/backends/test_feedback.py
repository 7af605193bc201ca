"""What a person says of an answer, in a real Jaeger: beside the judge's score, and as the reason of
an evaluation.
"""

from __future__ import annotations

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from agenteval_otel import configure, evaluation_reference, flush, monitor, record_feedback
from agenteval_otel.storage import OtlpStorageProvider
from agenteval_otel.testing import ModelReply, ModelServer

from .jaeger import Jaeger, JaegerSpan

pytestmark = pytest.mark.backend

LIMIT_S = 30.0
VERDICT = '{"evidence": [], "reason": "as asked", "score": true}'
PREFIX = "gen_ai.evaluation."


def test_a_thumb_stands_beside_the_judges_score(
    jaeger: Jaeger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below the answer's span, of a sampled answer; and of an unsampled one with the results that
    it brought about.
    """
    monkeypatch.setenv("OTEL_SERVICE_NAME", "feedback")
    host = TracerProvider(resource=Resource({"service.name": "feedback"}))
    host.add_span_processor(
        SimpleSpanProcessor(OTLPSpanExporter(f"http://{jaeger.otlp_endpoint}", insecure=True))
    )
    with ModelServer([ModelReply(text=VERDICT)]) as model:
        judge = {"type": "openai_compatible", "model": "m", "base_url": f"{model.url}/v1"}
        configure(
            storage=[
                OtlpStorageProvider(
                    endpoint=f"http://{jaeger.otlp_endpoint}", signals=frozenset({"traces"})
                )
            ],
            evaluators=[
                {
                    "type": "LLMJudge",
                    "criterion_name": "polite",
                    "description": "Polite?",
                    "judge": judge,
                }
            ],
            sample_rate=1.0,
            agents={"unsampled": {"sample_rate": 0.0}},
            feedback_window_s=600,
        )
        traces = {}
        for agent in ("sampled", "unsampled"):
            answer = monitor(agent=agent)(lambda question: evaluation_reference())
            with host.get_tracer("host").start_as_current_span("request") as span:
                reference = answer("When?")
            assert flush(LIMIT_S)
            record_feedback(reference, thumbs="down")
            assert flush(LIMIT_S)
            traces[agent] = (
                f"{span.get_span_context().trace_id:032x}",
                f"{span.get_span_context().span_id:016x}",
            )
        assert len(model.requests) == 2
    for agent, (trace_id, request_id) in traces.items():
        runs = below(jaeger, trace_id, request_id)
        scores = {
            name: value
            for run in runs
            for name, value in run.tags.items()
            if name.endswith(".score")
        }
        assert scores == {f"{PREFIX}polite.score": 1, f"{PREFIX}user_feedback.score": 0}, agent
        reasons = {
            run.tags.get("agenteval.sampling.reason")
            for run in runs
            if f"{PREFIX}polite.score" in run.tags
        }
        assert reasons == ({"feedback"} if agent == "unsampled" else {"ratio"})


def below(jaeger: Jaeger, trace_id: str, parent_id: str) -> list[JaegerSpan]:
    """The run spans below a span, once there are two."""

    def runs() -> list[JaegerSpan]:
        trace = jaeger.trace(trace_id)
        return (
            [span for span in trace.spans if span.parents == (parent_id,)]
            if trace is not None
            else []
        )

    jaeger.wait_for(lambda _: len(runs()) == 2, LIMIT_S)
    return runs()
