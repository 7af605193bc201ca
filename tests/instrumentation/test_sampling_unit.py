"""The unit of sampling, handlers that repeat within a trace, and what was sampled upstream."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from agenteval_otel import monitor
from agenteval_otel.pipeline import InlineDispatcher, Pipeline
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.sampling.trace import CallRandomness, SamplingSettings
from agenteval_otel.testing import RecordedTelemetry
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
    pipeline = Pipeline(
        sampler=RatioSampler(ratio=ratio),
        evaluators=(Free(sample_rate=own_rate),),
        storage=(telemetry.storage(),),
        dispatcher=InlineDispatcher(),
        sampling=SamplingSettings(**sampling),
    )
    return monitor(agent=agent, pipeline=pipeline)(lambda question: "An answer.")


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
    """Two processes give a span's first, second and third call the same numbers, and no two calls
    the same.
    """
    here, there = CallRandomness(), CallRandomness()
    contexts = [remote(1, None, span_id=span) for span in (5, 6, 5, 5, 6)]
    numbers = [here(context) for context in contexts]
    assert numbers == [there(context) for context in contexts]
    assert len(set(numbers)) == 5
    for span in range(10_000):
        here(remote(1, None, span_id=span + 1))
    assert len(here._calls) <= 1024


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


QUARTER = "th:c"


@pytest.mark.parametrize(
    ("state", "sampled", "ratio", "settings", "expected"),
    [
        (None, True, 0.5, {}, (0.5, "received")),
        (QUARTER, True, 1.0, {}, (0.25, None)),
        ("rv:ffffffffffffff;th:c", True, 0.5, {}, (0.25, None)),
        (QUARTER, True, 0.125, {}, (0.125, None)),
        (QUARTER, False, 1.0, {}, (1.0, "received")),
        ("th:xyz", True, 1.0, {}, (1.0, "received")),
        (QUARTER, True, 1.0, {"unit": "call"}, (0.25, None)),
        (None, True, 0.5, {"upstream_ratio": 0.1}, (0.05, None)),
        (QUARTER, True, 0.5, {"upstream_ratio": 1}, (0.5, None)),
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
    """``ot=th`` of a sampled span nests with the ratio, a stated share multiplies; else the scope
    is `received`.
    """
    handler = handler_of(telemetry, ratio, **settings)
    under(remote((1 << 56) - 1 if state else 1, state, sampled=sampled), handler)
    (event,) = telemetry.events()
    assert (event.attributes[PROBABILITY], event.attributes.get(SCOPE)) == expected


def test_an_attribute_of_the_span_carries_the_share(telemetry: RecordedTelemetry) -> None:
    """The named attribute goes before the fixed share; where it is no probability the fixed share
    stays.
    """
    handler = handler_of(telemetry, upstream_attribute="sampled.share", upstream_ratio=0.5)
    for share in (0.2, "often", None):
        with telemetry.tracer().start_as_current_span(
            "request", attributes={"sampled.share": share} if share else {}
        ):
            handler("A question?")
    assert event_values(telemetry, PROBABILITY) == [0.2, 0.5, 0.5]


def test_weights_add_up_to_all_responses(telemetry: RecordedTelemetry) -> None:
    """Where only traces kept upstream arrive, the weights of those that are evaluated add up to all
    there were.
    """
    totals: Counter[float] = Counter()
    for ratio in (1.0, 0.5, 0.125):
        handler, before = handler_of(telemetry, ratio), len(telemetry.events())
        for number in range(1_024):
            randomness = ((2 * number + 1) << 56) // 2_048
            if randomness >= 0xC << 52:  # kept by the head sampler with the threshold c, a quarter
                under(remote(randomness, QUARTER), handler)
        totals[ratio] = sum(1 / share for share in event_values(telemetry, PROBABILITY)[before:])
    assert totals == {1.0: 1_024, 0.5: 1_024, 0.125: 1_024}
