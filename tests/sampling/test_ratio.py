"""RatioSampler, and the randomness that it decides by."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from opentelemetry.trace import SpanContext, TraceFlags
from opentelemetry.trace.span import TraceState

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.sampling import RatioSampler, SamplingContext
from agenteval_otel.sampling.base import RANDOMNESS_RANGE
from agenteval_otel.sampling.key import FIXED_KEY
from agenteval_otel.sampling.trace import Trust, randomness_of

RATIOS = (0.0, 0.001, 0.1, 0.25, 1 / 3, 0.5, 0.9, 1.0)
TRACE_ID = 0x0123456789ABCDEF0123456789ABCDEF
trace_ids = st.integers(min_value=1, max_value=(1 << 128) - 1)


def in_trace(trace_id: int, state: str | None = None) -> SpanContext:
    trace_state = TraceState([("ot", state)]) if state is not None else None
    return SpanContext(trace_id, 1, False, TraceFlags(1), trace_state)


def drawn(context: SpanContext, *trust: Trust) -> int:
    return randomness_of(context, FIXED_KEY, trust)


def sampled(ratio: float, randomness: int) -> bool:
    return RatioSampler(ratio=ratio).decide(SamplingContext("agent", randomness)).sampled


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan"), "often"])
def test_ratios_outside_the_unit_interval_are_refused(ratio: Any) -> None:
    """A ratio is a share: what is none is refused at start, with its path."""
    with pytest.raises(ConfigurationError) as caught:
        RatioSampler.load({"ratio": ratio}, path="sampler")
    assert caught.value.path == "sampler.ratio"


def test_the_decision_records_its_probability() -> None:
    """Taken or not, a decision carries the ratio as its probability and says why."""
    sampler = RatioSampler(ratio=0.25)
    yes, no = (
        sampler.decide(SamplingContext("agent", randomness))
        for randomness in (0, RANDOMNESS_RANGE - 1)
    )
    assert (yes.sampled, yes.probability, yes.reason) == (True, 0.25, "ratio")
    assert (no.sampled, no.probability, no.outcome) == (False, 0.25, "not_sampled")


def test_the_rule_is_the_sdks() -> None:
    """Where trace ids are trusted, the same ones are taken as by OpenTelemetry's own ratio sampler."""
    numbers = random.Random(11)
    ids = [numbers.getrandbits(128) or 1 for _ in range(10_000)]
    for ratio in RATIOS:
        theirs = TraceIdRatioBased(ratio)
        ours = RatioSampler(ratio=ratio)
        for trace_id in ids:
            expected = (
                theirs.should_sample(None, trace_id, "name").decision is Decision.RECORD_AND_SAMPLE
            )
            randomness = drawn(in_trace(trace_id), "trace_id")
            assert ours.decide(SamplingContext("agent", randomness)).sampled is expected


@given(trace_ids, st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 1.0]))
def test_a_threshold_in_the_trace_state_brings_the_conventions_rule(
    trace_id: int, ratio: float
) -> None:
    """With a trusted ``ot=th`` a trace is taken when its last 56 bits reach the threshold of the
    ratio.
    """
    threshold = int((1 - ratio) * (1 << 56))
    expected = (trace_id & ((1 << 56) - 1)) >= threshold
    assert sampled(ratio, drawn(in_trace(trace_id, "th:8"), "tracestate")) is expected


@given(
    trace_ids,
    st.integers(0, (1 << 56) - 1),
    st.sampled_from(["th:8;rv:{}", "rv:{};th:c", "p:1;rv:{};th:0;x:y"]),
)
def test_an_explicit_random_value_takes_the_place_of_the_trace_id(
    trace_id: int, value: int, entry: str
) -> None:
    """With ``rv`` the randomness is the one that the trace state names."""
    state = entry.format(f"{value:014x}")
    assert sampled(0.5, drawn(in_trace(trace_id, state), "tracestate")) is (value >= 1 << 55)


@pytest.mark.parametrize(
    "bad",
    [
        "rv:",
        "rv:+1234567890abc",
        "rv:1_2_3_4_5_6_78",
        "rv:0x1234567890ab",
        "rv:ABCDEFABCDEFAB",
        "rv:123456789012345",
        "rv",
    ],
)
def test_a_malformed_random_value_does_not_count(bad: str) -> None:
    """The randomness comes from the trace id."""
    malformed, plain = (in_trace(TRACE_ID, state) for state in (f"th:8;{bad}", "th:8"))
    assert drawn(malformed, "tracestate") == drawn(plain, "tracestate")


@pytest.mark.parametrize("entry", ["rv:00000000000000", "p:8", "eth:8", "x:th:8", "th:", "th:xyz"])
def test_without_a_threshold_the_trace_state_says_nothing(entry: str) -> None:
    """Another entry of OpenTelemetry in a trusted trace state leaves the decision to the id, or to
    its keyed hash.
    """
    context = in_trace(TRACE_ID, entry)
    assert drawn(context, "tracestate", "trace_id") == TRACE_ID & ((1 << 64) - 1)
    assert drawn(context, "tracestate") == FIXED_KEY.of_trace(TRACE_ID)


@given(trace_ids, st.sampled_from([None, "th:0", "th:8;rv:ffffffffffffff", "th:fffffffffffffe"]))
def test_by_default_neither_id_nor_trace_state_is_believed(
    trace_id: int, state: str | None
) -> None:
    """The key decides, and no trace state changes its number."""
    assert drawn(in_trace(trace_id, state)) == FIXED_KEY.of_trace(trace_id)
