"""The unit of sampling, handlers that repeat within a trace, and what was sampled upstream."""

from __future__ import annotations

import logging
import math
import random
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import IdGenerator, TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from agenteval_otel import monitor
from agenteval_otel.engine.pipeline import InlineDispatcher, Pipeline
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.sampling.base import threshold_of
from agenteval_otel.sampling.key import SamplingKey
from agenteval_otel.sampling.trace import (
    CallRandomness,
    CallsPerTrace,
    SamplingSettings,
    randomness_of,
    upstream_of,
)
from agenteval_otel.testing import RecordedTelemetry
from tests.pipelines import pipeline_with
from tests.testing.doubles import Free

PROBABILITY, SCOPE, CLUSTERED = (
    f"agenteval.sampling.{name}" for name in ("probability", "scope", "clustered")
)


def handler_of(
    telemetry: RecordedTelemetry,
    ratio: float = 1.0,
    *,
    own_rate: float | None = None,
    agent: str = "support",
    **sampling: Any,
) -> Any:
    pipeline = pipeline_of(telemetry, ratio, own_rate=own_rate, **sampling)
    return monitor(agent=agent, pipeline=pipeline)(lambda question: "An answer.")


def pipeline_of(
    telemetry: RecordedTelemetry,
    ratio: float = 1.0,
    *,
    own_rate: float | None = None,
    **sampling: Any,
) -> Pipeline:
    return pipeline_with(
        sampler=RatioSampler(ratio=ratio),
        evaluators=(Free(sample_rate=own_rate),),
        storage=(telemetry.storage(),),
        dispatcher=InlineDispatcher(),
        sampling=SamplingSettings(**sampling),
    )


class Numbers(IdGenerator):
    """Ids that are the same in each run."""

    def __init__(self) -> None:
        self._numbers = random.Random(3)

    def generate_trace_id(self) -> int:
        return self._numbers.getrandbits(128) or 1

    def generate_span_id(self) -> int:
        return self._numbers.getrandbits(64) or 1


def under(span_context: SpanContext, handler: Any) -> None:
    with trace.use_span(NonRecordingSpan(span_context)):
        handler("A question?")


def remote(
    trace_id: int, state: str | None, *, sampled: bool = True, span_id: int = 7
) -> SpanContext:
    return SpanContext(
        trace_id,
        span_id,
        is_remote=True,
        trace_flags=TraceFlags(1 if sampled else 0),
        trace_state=TraceState([("ot", state)]) if state else None,
    )


def event_values(telemetry: RecordedTelemetry, name: str) -> list[Any]:
    return [event.attributes.get(name) for event in telemetry.events()]


def test_a_trace_is_in_or_out_as_a_whole_and_calls_one_by_one(telemetry: RecordedTelemetry) -> None:
    """400 calls below one span: by trace none or all, by call about the ratio, from which
    evaluators' own rates cut.
    """
    for unit, ratio, own_rate, expected in (
        ("trace", 0.25, None, (0, 400)),
        ("call", 0.25, None, range(60, 141)),
        ("call", 0.5, 0.25, range(60, 141)),
    ):
        handler = handler_of(telemetry, ratio, own_rate=own_rate, unit=unit)
        before = len(telemetry.events())
        for _ in range(400):
            under(remote(0xABC, None), handler)
        assert len(telemetry.events()) - before in expected
    assert set(event_values(telemetry, PROBABILITY)) <= {0.25}


def test_the_calls_of_a_span_are_numbered_alike_in_every_process() -> None:
    """Two processes with one key give a span's first, second and third call the same numbers, and
    no two calls the same.
    """
    here, there = (CallRandomness(SamplingKey(b"one key")) for _ in range(2))
    contexts = [remote(1, None, span_id=span) for span in (5, 6, 5, 5, 6)]
    numbers = [here(context) for context in contexts]
    assert numbers == [there(context) for context in contexts]
    assert len(set(numbers)) == 5
    for span in range(10_000):
        here(remote(1, None, span_id=span + 100))
    assert here(contexts[0]) == numbers[0], "a span is forgotten for the later ones"


def test_a_handler_that_repeats_in_a_trace_is_named_once(
    telemetry: RecordedTelemetry, caplog: pytest.LogCaptureFixture
) -> None:
    """From the ninth call in one trace on the results say that intervals are too narrow; the log
    says it once. Calls that are sampled one by one, and those of different traces, are as good as
    independent.
    """
    caplog.set_level(logging.WARNING, "agenteval_otel")
    repeating, apart, by_call = (
        handler_of(telemetry, agent="repeating", unit=unit) for unit in ("trace", "trace", "call")
    )
    for trace_id in range(1, 21):
        under(remote(trace_id, None), apart)
        under(remote(1, None), by_call)
    assert event_values(telemetry, CLUSTERED) == [None] * 40
    for trace_id in (1, 2):
        for _ in range(12):
            under(remote(trace_id, None), repeating)
    assert event_values(telemetry, CLUSTERED)[40:] == [None] * 8 + [True] * 16
    (named,) = [
        entry.getMessage()
        for entry in caplog.records
        if "handler_repeats_in_trace" in entry.getMessage()
    ]
    assert "repeating" in named


def test_calls_are_counted_in_the_last_traces() -> None:
    """The count of a trace is forgotten after 1,024 later ones, and of the handlers that repeat the
    latest 1,024 are known.
    """
    calls = CallsPerTrace()

    def add_until_it_repeats(agent: str, trace_id: int) -> int:
        count = 1
        while not calls.add(agent, trace_id):
            count += 1
        return count

    for trace_id in range(1, 1_025):
        assert [calls.add("early", trace_id) for _ in range(8)] == [False] * 8
    calls.add("early", 1_025)
    assert calls.add("early", 1_024), "one of the last traces is forgotten"
    for number in range(1_024):
        assert add_until_it_repeats(f"agent-{number}", 1) == 9
    assert "early" not in calls.repeating
    assert len(calls.repeating) == 1_024
    assert add_until_it_repeats("early", 1) == 9


QUARTER = "th:c"
STATE, ID = {"trust": ("tracestate",)}, {"trust": ("trace_id",)}
CALL = {"unit": "call"}


@pytest.mark.parametrize(
    ("state", "sampled", "ratio", "settings", "expected"),
    [
        # not trusted: as without it
        (None, True, 1.0, {}, (1.0, "received")),
        (QUARTER, True, 1.0, {}, (1.0, "received")),
        ("th:fffffffffffffe;rv:ffffffffffffff", True, 1.0, {}, (1.0, "received")),
        (QUARTER, True, 1.0, ID, (1.0, "received")),
        # trusted
        (None, True, 1.0, STATE, (1.0, "received")),
        (QUARTER, True, 1.0, STATE, (0.25, None)),
        ("rv:ffffffffffffff;th:c", True, 0.5, STATE, (0.25, None)),
        (QUARTER, True, 0.125, STATE, (0.125, None)),
        (QUARTER, True, 1.0, STATE | CALL, (0.25, None)),
        # what cannot be: not kept, below the threshold, unreadable, too small to be believed
        (QUARTER, False, 1.0, STATE, (None, None)),
        ("rv:bfffffffffffff;th:c", True, 1.0, STATE, (None, None)),
        ("th:xyz", True, 1.0, STATE, (None, None)),
        ("th:ffe", True, 1.0, STATE, (None, None)),
        ("th:ffe", True, 1.0, STATE | {"upstream_least": 0.0001}, (2.0**-11, None)),
        # a stated share goes before it
        (None, True, 1.0, {"upstream_ratio": 0.1}, (0.1, None)),
        (QUARTER, True, 1.0, {"upstream_ratio": 1}, (1.0, None)),
        (QUARTER, True, 1.0, STATE | {"upstream_ratio": 0.5}, (0.5, None)),
    ],
)
def test_sampling_upstream_counts(
    telemetry: RecordedTelemetry,
    state: str | None,
    sampled: bool,
    ratio: float,
    settings: dict[str, Any],
    expected: Any,
) -> None:
    """A trusted ``ot=th`` of a sampled span nests with the ratio, a stated share multiplies; else
    the scope is `received`, or the probability is unknown where the trace state contradicts itself.
    """
    handler = handler_of(telemetry, ratio, **settings)
    under(remote((1 << 56) - 1, state, sampled=sampled), handler)
    (event,) = telemetry.events()
    assert (event.attributes.get(PROBABILITY), event.attributes.get(SCOPE)) == expected


def test_what_is_not_believed_is_counted(
    telemetry: RecordedTelemetry, caplog: pytest.LogCaptureFixture
) -> None:
    """An answer of unknown probability is evaluated, counted by its reason, and named once in the
    log.
    """
    caplog.set_level(logging.WARNING, "agenteval_otel")
    pipeline = pipeline_of(telemetry, **STATE)
    handler = monitor(agent="support", pipeline=pipeline)(lambda question: "An answer.")
    for state in ("th:ffe", "th:ffe", "th:xyz"):
        under(remote((1 << 56) - 1, state), handler)
    assert pipeline.accounting.failures == {
        "probability:upstream_too_small": 2,
        "probability:upstream_not_kept": 1,
    }
    assert pipeline.accounting.outcomes()["evaluated"] == 3
    lines = [line for line in caplog.messages if "probability_unknown" in line]
    assert len(lines) == 2


def counts_of(settings: dict[str, Any], threshold: int, ratio: float) -> tuple[int, float, int]:
    """Of evenly spread ids that head sampling kept by this threshold: how many were evaluated, and
    what their weights add up to; and how many ids there were.
    """
    chosen, key = SamplingSettings(**settings), SamplingKey(b"of this test")
    by_trace = chosen.unit == "trace"
    draw = CallRandomness(key) if not by_trace else None
    evaluated, weights, ids = 0, 0.0, 1_024
    for number in range(ids):
        randomness = ((2 * number + 1) << 56) // (2 * ids)
        if randomness < threshold:
            continue
        context = remote((number * 0x9E3779B97F4A7C15 << 64) | randomness, f"th:{threshold:014x}")
        drawn = draw(context) if draw else randomness_of(context, key, chosen.trust)
        if drawn < threshold_of(ratio):
            probability = upstream_of(context, chosen, by_trace=by_trace).applied(ratio)
            assert probability is not None
            evaluated, weights = evaluated + 1, weights + 1 / probability
    return evaluated, weights, ids


@pytest.mark.parametrize("unit", ["trace", "call"])
@pytest.mark.parametrize("trust", [(), ("tracestate",), ("trace_id", "tracestate")])
@pytest.mark.parametrize("dropped", [0.0, 0.25, 0.75])
@pytest.mark.parametrize("ratio", [1.0, 0.5, 0.125])
def test_weights_add_up_whatever_is_trusted(
    unit: str, trust: tuple[str, ...], dropped: float, ratio: float
) -> None:
    """Behind head sampling by ``ot=th`` the weights add up to all answers where the trace state is
    trusted, and to those that arrived where it is not.
    """
    threshold = int(dropped * (1 << 56))
    evaluated, weights, ids = counts_of({"unit": unit, "trust": trust}, threshold, ratio)
    total = ids if trust else ids * (1 - dropped)
    assert evaluated
    error = math.sqrt(evaluated) * total / evaluated
    nests = bool(trust) and unit == "trace"
    assert abs(weights - total) <= (1e-6 if nests else 4 * error)


def test_trusted_ids_nest_with_a_sampler_by_ids() -> None:
    """Where the operator trusts trace ids, a stated share was cut by them too: the smaller counts."""
    by_id, by_key = (SamplingSettings(upstream_ratio=0.1, **trust) for trust in (ID, {}))
    context = remote(1, None)
    assert upstream_of(context, by_id).applied(0.05) == 0.05
    assert upstream_of(context, by_id, by_trace=False).applied(0.05) == pytest.approx(0.005)
    assert upstream_of(context, by_key).applied(0.05) == pytest.approx(0.005)


def test_only_recorded_calls_are_decided_where_that_is_asked_for(
    telemetry: RecordedTelemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that records a quarter of its traces: the other calls count as `not_recorded`, and the
    sampler's ratio is in the probability of a call in a root span.
    """
    head = ParentBased(TraceIdRatioBased(0.25))
    provider = TracerProvider(sampler=head, id_generator=Numbers())
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    pipeline = pipeline_of(telemetry, only_recorded=True)
    handler = monitor(agent="support", pipeline=pipeline)(lambda question: "An answer.")
    for _ in range(400):
        with provider.get_tracer("host").start_as_current_span("request"):
            handler("A question?")
    outcomes = pipeline.accounting.outcomes()
    assert outcomes["evaluated"] + outcomes["not_recorded"] == 400
    assert 60 <= outcomes["evaluated"] <= 140
    assert set(event_values(telemetry, PROBABILITY)) == {0.25}


def test_a_head_sampler_that_is_not_followed_is_named_once(
    telemetry: RecordedTelemetry,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Most evaluated answers have no recorded trace then; with `only_recorded` or trusted ids there
    is nothing to say.
    """
    caplog.set_level(logging.WARNING, "agenteval_otel")
    provider = TracerProvider(sampler=TraceIdRatioBased(0.25))
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    for settings in (ID, {"only_recorded": True}, {}):
        handler = handler_of(telemetry, **settings)
        for _ in range(20):
            with provider.get_tracer("host").start_as_current_span("request"):
                handler("A question?")
        named = [line for line in caplog.messages if "head_sampling_ignored" in line]
        assert len(named) == (settings == {})


def test_an_attribute_of_the_span_carries_the_share(telemetry: RecordedTelemetry) -> None:
    """The named attribute goes before the fixed share; where it is no probability the fixed share
    stays. Text, as baggage brings it, is none; a share below `upstream_least` is unknown.
    """
    handler = handler_of(telemetry, upstream_attribute="sampled.share", upstream_ratio=0.5)
    for share in (0.2, "often", "0.2", 0.0005, None):
        with telemetry.tracer().start_as_current_span(
            "request", attributes={"sampled.share": share} if share else {}
        ):
            handler("A question?")
    assert event_values(telemetry, PROBABILITY) == [0.2, 0.5, 0.5, None, 0.5]
