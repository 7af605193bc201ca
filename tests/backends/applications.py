"""Applications of the backend tests, programs of their own:
`python -m tests.backends.applications NAME ARGUMENT...`.

Where everything goes is what the `OTEL_*` variables say.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator
from random import Random
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry._logs import set_logger_provider
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import (
    OTLPMetricExporter as HttpMetricExporter,
)
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind

from agenteval_otel import (
    EvaluationInput,
    accounting,
    annotate,
    configure,
    flush,
    monitor,
    shutdown,
)
from agenteval_otel.config import default_pipeline
from agenteval_otel.engine.pipeline import PoolDispatcher
from agenteval_otel.evaluators import Coherence, Func, ResponseHealth, RuleBased
from agenteval_otel.judges import AnthropicJudge, BreakerSettings, CacheSettings, SpendLimits
from agenteval_otel.testing import ModelReply, ModelServer
from tests.backends.sidecar import EVERYTHING

EVERY_S = 0.25
SHORT, REFUSAL, LONG = (
    "We open at nine.",
    "I'm sorry, but I can't help with that request.",
    "Yes. " * 40,
)
SHORT_ENOUGH = RuleBased(rules=[{"criterion": "short_enough", "type": "length", "max": 100}])


def end(*providers: TracerProvider) -> None:
    """Leaves nothing behind; fails unless everything was sent."""
    everything = flush(30.0)
    for provider in providers:
        provider.shutdown()
    shutdown(5.0)
    if not everything:
        raise SystemExit("not everything was exported")


def broken(evaluation_input: EvaluationInput) -> bool:
    """An evaluator that is broken: its failures are counted and never become scores."""
    raise ConnectionError("the list of products is not there")


def judged(settings: str) -> None:
    """Answers by a settings file until it is killed."""
    configure(settings)

    @monitor(agent="support")
    def handler(question: str) -> str:
        return "At nine, with pleasure."

    for number in itertools.count():
        handler(f"When do you open on day {number}?")
        time.sleep(EVERY_S)


WATCHED_ANSWERS = 40


def watched(providers: str) -> None:
    """One handler and no flush at the end.

    With the `providers` ``host`` it has the SDK's three, with their default batch processors, as
    most services do; with ``none`` it only has the variables.
    """
    if providers == "host":
        traces, logs = TracerProvider(), LoggerProvider()
        traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
        trace.set_tracer_provider(traces)
        set_logger_provider(logs)
        metrics.set_meter_provider(
            MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())])
        )
    configure(
        **EVERYTHING,
        evaluators=[ResponseHealth(), SHORT_ENOUGH],
    )
    answer = monitor(agent="watched")(lambda number: LONG if number % 4 == 0 else SHORT)
    for number in range(WATCHED_ANSWERS):
        answer(number)


def is_polite(evaluation_input: EvaluationInput) -> bool:
    return "please" in evaluation_input.response_text.lower()


def shop() -> None:
    """Like most applications it sets up tracing and nothing else, and its resource names no host."""
    answers = ("We open at nine; please ring the bell.", "", REFUSAL, LONG)
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    tracer = trace.get_tracer("shop")
    configure(
        **EVERYTHING,
        evaluators=[ResponseHealth(), SHORT_ENOUGH, Func.of(is_polite), Func.of(broken)],
    )

    @monitor(agent="shop")
    def answer(number: int) -> str:
        annotate(model="scripted-1")
        return answers[number % len(answers)]

    @monitor(agent="shop")
    def stream(number: int) -> Iterator[str]:
        annotate(model="scripted-1")
        for word in answers[number % len(answers)].split():
            yield word + " "

    for number in range(6 * len(answers)):
        # It claims to have begun long ago: Jaeger looks for clock skew only below spans longer than
        # their child.
        began = time.time_ns() - 2_000_000_000
        with tracer.start_as_current_span("POST /ask", kind=SpanKind.SERVER, start_time=began):
            with tracer.start_as_current_span("find the customer", kind=SpanKind.CLIENT):
                pass
            if number // len(answers) % 2:
                "".join(stream(number))
            else:
                answer(number)
    # Outside any trace of the application: the agent's own span is the evaluated one.
    answer(0)
    end(provider)


CRITERIA = (
    "response_health",
    "short_enough",
    "courtesy",
    "names_the_topic",
    "next_step",
    "tools_worked",
)


def others(seconds: str) -> None:
    """What no demo brings: an agent `support` whose evaluators all break, under the names of the
    demo's criteria, and an agent that no settings name, with what every handler gets."""
    configure(**EVERYTHING, evaluators=[ResponseHealth()])

    @monitor(
        agent="support", evaluators=[Func.of(broken, criterion_name=name) for name in CRITERIA]
    )
    def unjudged(question: str) -> str:
        return f"About {question}: we open at nine."

    @monitor(agent="concierge")
    def concierge(number: int) -> str:
        annotate(model="scripted-1")
        return (SHORT, "", REFUSAL)[number % 3]

    for number in range(round(float(seconds) / EVERY_S)):
        concierge(number)
        if number % 4 == 0:
            unjudged("opening hours")
        time.sleep(EVERY_S)
    end()


def reviewed(seconds: str) -> None:
    """A model judges its answers: the real client of Anthropic against a provider on loopback, with
    a spend limit, a breaker and a cache. Now and then the provider is overloaded, or a burst is
    more than the small queue takes.
    """
    requests = itertools.count(1)

    def reply(_: dict[str, Any]) -> ModelReply | str:
        number = next(requests)
        if number % 7 == 0:
            return ModelReply(status=400)
        return json.dumps(
            {"evidence": [], "reason": "it reads well", "score": 2 if number % 5 == 0 else 5}
        )

    @monitor(agent="assistant")
    def answer(number: int) -> str:
        annotate(model="scripted-1")
        return f"The parcel number {number} is on its way and arrives within two days."

    with ModelServer([reply]) as provider:
        judge = AnthropicJudge(
            base_url=provider.url,
            api_key="none",
            model="judge-1",
            max_retries=0,
            spend=SpendLimits(prices={"*": {"input": 1.0, "output": 5.0}}, usd_per_day=5.0),
            breaker=BreakerSettings(),
            cache=CacheSettings(),
        )
        configure(
            sample_rate=1.0,
            evaluators=[Coherence(judge=judge, objective=0.7)],
            dispatcher=PoolDispatcher(max_items=16),
            judge_health={"repeat_share": 0.5, "repeat_agreement": 0.9, "window": 100},
        )
        until, numbers = time.monotonic() + float(seconds), itertools.count()
        for turn in itertools.count():
            for _ in range(40 if turn % 10 == 9 else 1):
                answer(next(numbers))
            if time.monotonic() >= until:
                break
            time.sleep(EVERY_S)
        end()


def price_named(evaluation_input: EvaluationInput) -> bool:
    return "EUR" in evaluation_input.response_text


def price(passes: bool) -> str:
    return "It costs 80 EUR." if passes else "It costs eighty."


def configure_prices() -> None:
    """Evaluate every answer by whether it names a price, as 95 of 100 should."""
    configure(
        **EVERYTHING,
        evaluators=[Func.of(price_named)],
        criteria={"default": [{"name": "price_named", "objective": 0.95}]},
    )


def changing(phases: str, per_second: str, seed: str) -> None:
    """Its quality changes: `phases` are seconds and the share of answers that pass,
    ``20:0.98,90:0.3``. Prints each share and when it began. With the same seed the same answers
    pass.
    """
    random = Random(seed)

    configure_prices()
    answer = monitor(agent="flights")(price)
    due, until = time.monotonic(), time.monotonic()
    for seconds, rate in (phase.split(":") for phase in phases.split(",")):
        print(rate, time.time(), flush=True)
        until += float(seconds)
        while due < until:
            answer(random.random() < float(rate))
            due += 1.0 / float(per_second)
            time.sleep(max(0.0, due - time.monotonic()))
    end()


SHARED = {f"to {rate} {number}": rate for rate in (0.85, 0.5) for number in range(6)}
"""The agents of `sharing`, and the share of their answers that passes in the end."""


def sharing(
    healthy_s: str, drop_s: str, per_second: str, index: str, processes: str, begins_at: str
) -> None:
    """One of several processes that share the answers of `SHARED` agents, each of which has so many in a
    second and falls to its rate after a time. Whatever the number of processes, the same answers pass:
    this one gives every `processes`-th of them.
    """

    configure_prices()
    agents = [(monitor(agent=name)(price), Random(name), rate) for name, rate in SHARED.items()]
    count = int((float(healthy_s) + float(drop_s)) * float(per_second))
    for number in range(count):
        after_s = number / float(per_second)
        time.sleep(max(0.0, float(begins_at) + after_s - time.time()))
        for ask, random, rate in agents:
            passes = random.random() < (0.97 if after_s < float(healthy_s) else rate)
            if number % int(processes) == int(index):
                ask(passes)


TURNS, FAILING_TURN = 5, 2
COUNTED_LIMIT_S = 200.0


def counted(
    settings: str, answers: str, seconds: str, then_s: str = "0", exporter: str = ""
) -> None:
    """Answers evenly over some seconds, in conversations of five turns, of which the third fails.

    Prints how many passed and failed. It ends `then_s` seconds after the last result. With an
    `exporter`, ``grpc`` or ``http``, the application has a meter provider of its own.
    """
    if exporter:
        made = OTLPMetricExporter() if exporter == "grpc" else HttpMetricExporter()
        metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(made)]))
    configure(settings)

    @monitor(agent="flights")
    def answer(passes: bool, conversation_id: str) -> str:
        return "It costs 80 EUR." if passes else "It costs eighty."

    count, failed = int(answers), 0
    began = time.monotonic()
    for number in range(count):
        passes = number % TURNS != FAILING_TURN
        failed += not passes
        answer(passes, f"{began} {number // TURNS}")
        time.sleep(max(0.0, began + float(seconds) * (number + 1) / count - time.monotonic()))
    print(json.dumps({"passed": count - failed, "failed": failed, "answered_at": time.time()}))
    while default_pipeline().accounting.results["scored"] < count:
        if time.monotonic() - began > COUNTED_LIMIT_S:
            raise SystemExit(f"of {count} answers: {accounting()}")
        time.sleep(EVERY_S)
    print(json.dumps({"evaluated_at": time.time()}))
    time.sleep(float(then_s))
    end()


PROGRAMS = {
    "changing": changing,
    "sharing": sharing,
    "counted": counted,
    "judged": judged,
    "watched": watched,
    "shop": shop,
    "others": others,
    "reviewed": reviewed,
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
