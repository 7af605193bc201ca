"""One agent behind every entry point, as a program: `python -m tests.backends.entry_points NAME`.

It asks the model at `MODEL_URL` each of the questions. Settings are those of `AGENTEVAL_SETTINGS`,
and everything goes where the `OTEL_*` variables say.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import openai

REPLIES = {
    "When do you open?": "We open at nine; please ring the bell.",
    "May I bring a dog?": "I'm sorry, but I can't help with that request.",
    "What does it cost?": "It costs 80 EUR for adults and 40 EUR for children.",
    "Where are you?": "Error: upstream timeout",
    "Tell me everything.": "We open at nine. " * 30,
    "And on Sunday?": "On Sunday we",
}
AGENT = "support"


@cache
def client() -> Any:
    return openai.OpenAI(base_url=f"{os.environ['MODEL_URL']}/v1", api_key="test", max_retries=0)


def answer(question: str) -> str:
    messages: Any = [{"role": "user", "content": question}]
    response = client().chat.completions.create(model="m-1", messages=messages)
    return str(response.choices[0].message.content)


def ask(handler: Callable[[str], object]) -> None:
    for question in REPLIES:
        handler(question)


def decorator() -> None:
    from agenteval_otel import monitor, shutdown

    ask(monitor(agent=AGENT)(answer))
    assert shutdown(30.0)


def middleware() -> None:
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    from agenteval_otel import shutdown
    from agenteval_otel.instrumentation import asgi

    app = FastAPI()
    app.add_middleware(asgi.AgentEvalMiddleware, routes={"POST /ask": AGENT})
    app.post("/ask")(_json)
    http = TestClient(app)
    ask(lambda question: http.post("/ask", json={"question": question}))
    assert shutdown(30.0)


def _json(body: dict[str, str]) -> dict[str, str]:
    return {"answer": answer(body["question"])}


def spans(*processors: Any, handler: Callable[[str], object] = answer) -> None:
    """The agent's spans, with those of the model's client below them, exported."""
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    for processor in (*processors, BatchSpanProcessor(OTLPSpanExporter())):
        provider.add_span_processor(processor)
    trace.set_tracer_provider(provider)
    OpenAIInstrumentor().instrument()
    ask(in_span(handler))
    provider.shutdown()


def in_span(handler: Callable[[str], object]) -> Callable[[str], object]:
    from opentelemetry import trace

    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": AGENT}
    span = trace.get_tracer("shop").start_as_current_span
    return lambda question: span(f"invoke_agent {AGENT}", attributes=attributes)(handler)(question)


def span_processor() -> None:
    from agenteval_otel import shutdown
    from agenteval_otel.instrumentation.spans import AgentEvalSpanProcessor

    spans(AgentEvalSpanProcessor())
    shutdown(30.0)


def all_at_once() -> None:
    """Decorator and span processor, around an instrumented client whose spans are exported."""
    from agenteval_otel import accounting, monitor, shutdown
    from agenteval_otel.instrumentation.spans import AgentEvalSpanProcessor

    spans(AgentEvalSpanProcessor(), handler=monitor(agent=AGENT)(answer))
    shutdown(30.0)
    print({outcome: count for outcome, count in accounting().items() if count})


def instrumented() -> None:
    """Run by `opentelemetry-instrument`, which sets everything up."""
    ask(in_span(answer))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
