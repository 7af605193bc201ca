"""The sidecar behind samplers: rates are unbiased where the share is known, and marked where it is
not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, TraceIdRatioBased
from opentelemetry.trace import StatusCode

from agenteval_otel import semconv
from tests.promises.served import messages

from .collector import Collector, configuration, plain
from .faults import LOOPBACK, free_ports
from .fixtures import running
from .sidecar import Sidecar

pytestmark = pytest.mark.backend

LIMIT_S = 90.0
ANSWERS = 1_200
FAILING = 0.25
SHARE = 0.25
OWN_RATE = 0.8
"""Of the answers that the sidecar receives: its own sampling is in force besides."""
PERCENT = {"sampling_percentage": 100 * SHARE}
ERRORS = {
    "name": "errors",
    "type": "status_code",
    "status_code": {"status_codes": ["ERROR"]},
}


def some(percent: float) -> dict[str, Any]:
    """A policy of tail sampling that keeps so many of 100 traces."""
    share = {"sampling_percentage": percent}
    return {"name": "some", "type": "probabilistic", "probabilistic": share}


def tail_sampling(*policies: dict[str, Any]) -> dict[str, Any]:
    return {"decision_wait": "1s", "num_traces": 10_000, "policies": list(policies)}


SAMPLERS: dict[str, dict[str, Any]] = {
    "proportional": {"probabilistic_sampler": {"mode": "proportional", **PERCENT}},
    "equalizing": {"probabilistic_sampler": {"mode": "equalizing", **PERCENT}},
    "hash-seed": {"probabilistic_sampler": {"mode": "hash_seed", "hash_seed": 22, **PERCENT}},
    "attribute": {
        "tail_sampling": tail_sampling(some(100 * SHARE)),
        "attributes": {
            "actions": [{"key": "acme.sampled.share", "value": SHARE, "action": "insert"}]
        },
    },
    "head": {},
    "tail": {"tail_sampling": tail_sampling(ERRORS, some(20))},
    "tapped": {},
}
"""By the service whose traffic they sample. That of ``head`` was sampled by its SDK, which says
nothing of it; what is ``tapped`` goes to the sidecar before a tail sampler."""
KNOWN = {"proportional", "equalizing", "hash-seed", "attribute"}


class Seen(NamedTuple):
    """What the sidecar made of a service's traffic: the events, and the weights that its metrics
    sum up, by label.
    """

    events: list[dict[str, Any]]
    weights: dict[str, float]


@pytest.fixture(scope="module", name="collectors")
def collectors_fixture(
    collector_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Collector, Collector]]:
    """The Collector in front, which has what the tail sampler kept, and the one behind, which has
    the scores.
    """
    folder = tmp_path_factory.mktemp
    with ExitStack() as stack:
        scores = stack.enter_context(running(Collector(collector_binary, folder("scores"))))
        settings = {
            "sample_rate": OWN_RATE,
            "sampling": {
                "upstream_attribute": "acme.sampled.share",
                "trust": ["tracestate"],
            },
            "evaluators": [
                {
                    "type": "Contains",
                    "criterion_name": "price",
                    "substrings": ["EUR"],
                    "threshold": 0.5,
                }
            ],
            "sidecar": {"quiet_s": 1.0},
        }
        sidecar = stack.enter_context(
            running(Sidecar(folder("sidecar"), settings, endpoint=scores.grpc_endpoint))
        )
        ports = dict(zip(SAMPLERS, free_ports(len(SAMPLERS)), strict=True))
        config = _configuration(ports, sidecar)
        front = stack.enter_context(
            running(Collector(collector_binary, folder("front"), config=config))
        )
        for service, port in ports.items():
            _answer(service, port)
        yield front, scores


def _configuration(ports: dict[str, int], sidecar: Sidecar) -> dict[str, Any]:
    """A receiver, a pipeline and a sampler for each service; what is tapped also goes through the
    tail sampler.
    """
    receivers, processors, pipelines = {}, {}, {}
    for name, sampler in SAMPLERS.items():
        protocols = {"grpc": {"endpoint": f"{LOOPBACK}:{ports[name]}"}}
        receivers[f"otlp/{name}"] = {"protocols": protocols}
        for kind, part in sampler.items():
            processors[f"{kind}/{name}"] = part
        pipelines[f"traces/{name}"] = {
            "receivers": [f"otlp/{name}"],
            "processors": [f"{kind}/{name}" for kind in sampler],
            "exporters": ["otlp/sidecar"],
        }
    pipelines["traces/kept"] = {
        "receivers": ["otlp/tapped"],
        "processors": ["tail_sampling/tail"],
        "exporters": ["file"],
    }
    return configuration(
        pipelines,
        receivers=receivers,
        processors=processors,
        exporters={"otlp/sidecar": plain(sidecar.ports.grpc)},
    )


def _answer(service: str, port: int) -> None:
    """Answers in traces of their own, of which a known share fails, and those that fail are errors."""
    sampler = TraceIdRatioBased(SHARE) if service == "head" else ALWAYS_ON
    provider = TracerProvider(sampler, Resource({"service.name": service}))
    exporter = OTLPSpanExporter(endpoint=f"http://{LOOPBACK}:{port}", insecure=True)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=2 * ANSWERS))
    tracer = provider.get_tracer("shop")
    for number in range(ANSWERS):
        fails = number < FAILING * ANSWERS
        content = messages("assistant", "No idea." if fails else "80 EUR.")
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": content}
        with tracer.start_as_current_span("chat m-1", attributes=attributes) as span:
            if fails:
                span.set_status(StatusCode.ERROR)
    provider.shutdown()


def seen_of(collectors: tuple[Collector, Collector], service: str) -> Seen:
    """All of it, once no more of it comes: metrics agree with events, and nothing is new in twenty
    looks.
    """
    _, scores = collectors
    scores.wait_until_settled(
        lambda seen: len(_events(seen, service)), looks=20, at_least=1, timeout_s=LIMIT_S
    )
    events = _events(scores, service)
    scores.wait_for(
        lambda seen: sum(_by_label(seen, "results", service).values()) == len(events), LIMIT_S
    )
    assert len(_events(scores, service)) == len(events)
    return Seen(events, _by_label(scores, "weight", service))


OF_SIDECAR = "agenteval-sidecar"


def _events(collector: Collector, service: str) -> list[dict[str, Any]]:
    events = (log.attributes for log in collector.logs() if log.name == semconv.EVENT_RESULT)
    return [event for event in events if event[semconv.SERVICE_NAME] == service]


def _by_label(collector: Collector, metric: str, service: str) -> dict[str, float]:
    found = collector.metric(f"agenteval.evaluation.{metric}", OF_SIDECAR)
    points = [] if found is None else found.points
    return {
        point.attributes[semconv.SCORE_LABEL]: point.value or 0.0
        for point in points
        if point.attributes[semconv.SERVICE_NAME] == service
    }


@pytest.mark.parametrize("service", SAMPLERS)
def test_rates_behind_a_sampler(service: str, collectors: tuple[Collector, Collector]) -> None:
    """Known shares are multiplied in, so that weights add up to all answers; unknown ones are
    marked as such.
    """
    seen = seen_of(collectors, service)
    total = sum(seen.weights.values())
    rate = seen.weights["fail"] / total
    probabilities = {round(event[semconv.SAMPLING_PROBABILITY], 4) for event in seen.events}
    scopes = {event.get(semconv.SAMPLING_SCOPE) for event in seen.events}
    print(
        f"{service}: {len(seen.events)} scored, {probabilities}, {scopes}, weight {total:.0f}, failing {rate:.3f}"
    )
    count = len(seen.events)
    margin = 5 * math.sqrt(FAILING * (1 - FAILING) / count)
    if service in KNOWN:
        # The sidecar's rate and `ot=th` share the trace's randomness: the smaller one counts.
        # Others multiply.
        expected = OWN_RATE * SHARE if service == "attribute" else min(OWN_RATE, SHARE)
        assert probabilities == {round(expected, 4)}
        assert scopes == {None}
        assert total == pytest.approx(ANSWERS, rel=5 / math.sqrt(count))
        assert rate == pytest.approx(FAILING, abs=margin)
    else:
        assert probabilities == {OWN_RATE}
        assert scopes == {semconv.SCOPE_RECEIVED}
    if service == "head":
        assert total < 0.5 * ANSWERS, "of what came this far"
    if service == "tail":
        assert rate > 2 * FAILING, "what it keeps is biased, and no weight repairs that"
    if service == "tapped":
        assert total == pytest.approx(ANSWERS, rel=5 / math.sqrt(count))
        assert rate == pytest.approx(FAILING, abs=margin)


def test_a_tap_before_tail_sampling_has_every_answer(
    collectors: tuple[Collector, Collector],
) -> None:
    """The tail sampler behind the tap keeps what it keeps: every error, few others; scores are of
    all answers.
    """
    front, _ = collectors
    seen = seen_of(collectors, "tapped")
    kept = Counter(span.trace_id for span in front.spans("tapped"))
    assert FAILING * ANSWERS <= len(kept) < 0.6 * ANSWERS
    assert len(seen.events) > 1.2 * len(kept)
