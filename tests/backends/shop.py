"""A small application for the backend tests, run as a program of its own: `python -m tests.backends.shop`.

Like most applications it sets up tracing and nothing else, and its resource names no host. Where everything goes is
what the `OTEL_*` variables say.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind

from agenteval_otel import EvaluationInput, annotate, configure, flush, monitor, shutdown
from agenteval_otel.evaluators import Func, ResponseHealth, RuleBased

ANSWERS = ("We open at nine; please ring the bell.", "", "I'm sorry, but I can't help with that request.", "Yes. " * 40)
ROUNDS = 6
REQUEST_NS = 2_000_000_000


def is_polite(evaluation_input: EvaluationInput) -> bool:
    return "please" in evaluation_input.response_text.lower()


def stock_is_right(evaluation_input: EvaluationInput) -> bool:
    """An evaluator that is broken: its failures are counted and never become scores."""
    raise ConnectionError("the stock list is not there")


@monitor(agent="shop")
def answer(number: int) -> str:
    annotate(model="scripted-1")
    return ANSWERS[number % len(ANSWERS)]


@monitor(agent="shop")
def stream(number: int) -> Iterator[str]:
    annotate(model="scripted-1")
    for word in ANSWERS[number % len(ANSWERS)].split():
        yield word + " "


def serve(number: int, tracer: trace.Tracer) -> None:
    """One request of the application: every other one streamed, in a trace of the application's own."""
    # It claims to have begun long ago: Jaeger looks for clock skew only below spans that are longer than their child.
    began = time.time_ns() - REQUEST_NS
    with tracer.start_as_current_span("POST /ask", kind=SpanKind.SERVER, start_time=began):
        with tracer.start_as_current_span("find the customer", kind=SpanKind.CLIENT):
            pass
        if number // len(ANSWERS) % 2:
            "".join(stream(number))
        else:
            answer(number)


def main() -> None:
    """Serves a few requests and leaves nothing behind; fails unless everything was sent."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    configure(
        sample_rate=1.0,
        load_shedding={"enabled": False},
        evaluators=[
            ResponseHealth(),
            RuleBased(rules=[{"criterion": "short_enough", "type": "length", "max": 100}]),
            Func.of(is_polite),
            Func.of(stock_is_right),
        ],
    )
    for number in range(ROUNDS * len(ANSWERS)):
        serve(number, trace.get_tracer("shop"))
    # Outside any trace of the application: the agent's own span is the evaluated one.
    answer(0)
    everything = flush(30.0)
    provider.shutdown()
    shutdown(5.0)
    if not everything:
        raise SystemExit("not everything was exported")


if __name__ == "__main__":
    main()
