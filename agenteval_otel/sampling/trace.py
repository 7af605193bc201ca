"""What a trace says of sampling: its randomness, and the share that came through upstream sampling.

The unit of sampling is the trace, or each call by itself.

All calls of a trace share its randomness, a keyed hash of the trace id: the senders of requests
choose ids and trace states, and must not choose what is evaluated, or what weight it has. Where
the operator trusts them, the number agrees with head sampling: by the SDK's rule (the low 64 bits
below ratio x 2^64), or with an ``ot=th`` entry in the trace state by the conventions' (the last 56
bits, or their ``rv`` value, at or above the threshold). Both become one number here, smaller is
kept first. Without a trace the number comes from our own generator: the host's is never touched.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from opentelemetry.trace import SpanContext
from pydantic import BaseModel, ConfigDict, Field, field_validator

from agenteval_otel.components.explained import FriendlyErrors
from agenteval_otel.models.scoring.probability import (
    SamplingDecision,
    independent,
    known,
    nested,
    of_threshold,
)
from agenteval_otel.runtime.fork import RANDOM
from agenteval_otel.sampling.base import RANDOMNESS_RANGE, Sampler, SamplingContext
from agenteval_otel.sampling.key import LOW_64, SamplingKey
from agenteval_otel.sampling.ratio import ThresholdRule
from agenteval_otel.semconv import UPSTREAM_NOT_KEPT, UPSTREAM_TOO_SMALL

Trust = Literal["trace_id", "tracestate"]

_MAX_CALLS_PER_TRACE: Final = 8
_MAX_KNOWN: Final = 1024
_DIGITS: Final = 14  # hexadecimal, of a number of 56 bits
_KEY_CHARS: Final = 16
_LOW_56: Final = (1 << 56) - 1
_HEXADECIMAL: Final = re.compile(r"[0-9a-f]{1,14}")
_RATIO: Final = re.compile(r"(?:ParentBased\{root:)?TraceIdRatioBased\{([0-9.e-]+)\}")


class SamplingSettings(BaseModel, metaclass=FriendlyErrors):
    """What samplers choose between, what was sampled before, and what of that is believed.

    Attributes:
        unit: ``trace``: all calls of a handler in one trace are evaluated, or none. ``call``: each
            call on its own, for jobs and loops with many calls in one trace.
        trust: What senders of requests and spans cannot choose: ``trace_id`` if the edge replaces
            the ids that clients send, ``tracestate`` if it removes their trace state. Decisions
            then agree with head sampling. By default nothing: a keyed hash of the id decides.
        key: The secret key of that hash, at least 16 characters. Processes with the same key decide
            alike, and know each other's evaluations. By default it is random in each process.
        only_recorded: Evaluate only calls whose current span is recorded, where the application
            samples traces by head. Other calls count as ``not_recorded``.
        upstream_ratio: Share of all responses, above 0 to 1, that reaches this process. It is 1
            without upstream sampling. Left out, it is taken from ``ot=th`` in a trusted trace
            state. Without that it is unknown.
        upstream_attribute: Name of the attribute of the evaluated span that carries this share. It
            overrides `upstream_ratio`.
        upstream_least: The least probability that is believed of others. An answer with a smaller
            one has an unknown probability, and no weight.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True
    )

    unit: Literal["trace", "call"] = "trace"
    trust: tuple[Trust, ...] = ()
    key: str | None = Field(default=None, repr=False)
    only_recorded: bool = False
    upstream_ratio: float | None = Field(default=None, gt=0, le=1)
    upstream_attribute: str | None = Field(default=None, min_length=1)
    upstream_least: float = Field(default=0.001, ge=0, le=1)

    @field_validator("key", mode="after")
    @classmethod
    def _is_long(cls, key: str | None) -> str | None:
        if key is not None and len(key) < _KEY_CHARS:
            raise ValueError("expected at least 16 characters: `openssl rand -hex 32` makes some")
        return key


def randomness_of(
    span_context: SpanContext | None, key: SamplingKey, trust: Collection[Trust] = ()
) -> int:
    """Return the response's randomness in [0, 2^64).

    It comes from its trace if there is one, else from our own generator.
    """
    if span_context is None:
        return RANDOM.getrandbits(64)
    if "tracestate" in trust:
        fields = _trace_state(span_context)
        if _hexadecimal(fields.get("th", "")) is not None:
            # The conventions keep large values, here small ones are kept: it is mirrored.
            return (_LOW_56 - _random_value(span_context, fields)) << 8
    if "trace_id" in trust:
        return span_context.trace_id & LOW_64
    return key.of_trace(span_context.trace_id)


def _trace_state(span_context: SpanContext) -> dict[str, str]:
    """Return the fields of the ``ot`` entry in the trace state: ``th`` and ``rv``."""
    state = span_context.trace_state
    entry = state.get("ot") if state else None
    fields: dict[str, str] = {}
    if entry:
        for part in entry.split(";"):
            name, colon, value = part.partition(":")
            if colon:
                fields[name] = value
    return fields


def _random_value(span_context: SpanContext, fields: dict[str, str]) -> int:
    """Return the conventions' randomness R in [0, 2^56): ``rv``, else the id's last 56 bits."""
    stated = fields.get("rv", "")
    if len(stated) == _DIGITS:
        value = _hexadecimal(stated)
        if value is not None:
            return value
    return span_context.trace_id & _LOW_56


def _hexadecimal(digits: str) -> int | None:
    """Return up to 14 digits as a number of 56 bits: zeros at the end may be left out.

    Return None for other text.
    """
    if _HEXADECIMAL.fullmatch(digits) is None:
        return None
    return int(digits.ljust(_DIGITS, "0"), 16)


def head_ratio_of(provider: Any) -> float | None:
    """Return the share of the traces that a tracer provider records.

    Its sampler has to be the SDK's by ratio. Return None for other samplers.
    """
    try:
        match = _RATIO.match(provider.sampler.get_description())
        return None if match is None else known(float(match[1]))
    except Exception:  # a provider without a sampler, or a sampler of the host's that raises
        return None


class CallRandomness:
    """Gives each call its own number in [0, 2^64).

    The key makes it from trace, span and the number of calls before it in that span. The first call
    of a span has the same number in every process with the same key. At 1,024 spans the oldest
    eighth is forgotten, and the next call of such a span counts as its first. Usable from any
    thread. Raises nothing.
    """

    def __init__(self, key: SamplingKey) -> None:
        self._key = key
        self._calls: dict[int, int] = {}

    def __call__(self, span_context: SpanContext | None) -> int:
        if span_context is None:
            return RANDOM.getrandbits(64)
        calls = self._calls
        span_id = span_context.span_id
        before = calls.get(span_id, 0)
        if not before and len(calls) >= _MAX_KNOWN:
            for oldest in list(calls)[: _MAX_KNOWN // 8]:
                calls.pop(oldest, None)
        calls[span_id] = before + 1
        identity = b"%d %d %d" % (span_context.trace_id, span_id, before)
        return self._key.of_text(identity, person=b"call")


class CallSampling:
    """Holds how a handler's calls are decided on as they begin. Read on the caller's thread.

    A call whose randomness is below `threshold` gets the decision `sampled`, every other call is
    unsampled. If the sampler must be asked, `sampled` is None, and the threshold is above every
    randomness.

    Args:
        sampler: The handler's sampler.
        asks_always: Ask the sampler about every call, even if randomness alone decides.

    Attributes:
        by_key: `randomness_of` is the key's number of the trace id, which the caller's thread
            computes itself: true in nearly every process.
    """

    __slots__ = (
        "by_key",
        "decide",
        "first",
        "keeps_memo",
        "key",
        "mask",
        "only_recorded",
        "randomness_of",
        "sampled",
        "second",
        "threshold",
        "upstream_attribute",
    )

    def __init__(
        self,
        sampler: Sampler,
        settings: SamplingSettings,
        key: SamplingKey,
        *,
        asks_always: bool = False,
    ) -> None:
        by_randomness = getattr(sampler, "by_randomness", None)
        rule: ThresholdRule | None = None if asks_always else by_randomness
        self.threshold: Final = RANDOMNESS_RANGE if rule is None else rule.threshold
        self.sampled: Final[SamplingDecision | None] = None if rule is None else rule.sampled
        self.decide: Final[Callable[[SamplingContext], SamplingDecision]] = sampler.decide
        self.keeps_memo: Final[bool] = getattr(sampler, "keeps_memo", False)
        self.upstream_attribute: Final = settings.upstream_attribute
        self.only_recorded: Final = settings.only_recorded
        by_trace = settings.unit == "trace"
        self.randomness_of: Final = _randomness_by_unit(settings, key)
        self.by_key: Final = by_trace and not settings.trust and not settings.only_recorded
        self.key: Final = key
        # Beside `key`, where reading them takes one step less.
        self.mask: Final = key.mask
        self.first: Final = key.first
        self.second: Final = key.second


def _randomness_by_unit(
    settings: SamplingSettings, key: SamplingKey
) -> Callable[[SpanContext | None], int]:
    if settings.unit == "trace":
        return partial(randomness_of, key=key, trust=settings.trust)
    return CallRandomness(key)


class CallsPerTrace:
    """Counts the sampled calls of each handler in each of the last 1,024 traces.

    Used by one thread only.
    """

    def __init__(self) -> None:
        # Handlers with more than eight in one trace, the latest 1,024.
        self.repeating: OrderedDict[str, None] = OrderedDict()
        # Emptied from the front, where a plain dictionary looks long for its first item.
        self._calls: OrderedDict[tuple[str, int], int] = OrderedDict()

    def add(self, agent: str, trace_id: int) -> bool:
        """Count a call.

        Return True once for each handler, with the call that makes it one of `repeating`.
        """
        if agent in self.repeating:
            self.repeating.move_to_end(agent)
            return False
        calls = self._calls
        key = (agent, trace_id)
        count = calls.pop(key, 0) + 1
        calls[key] = count
        if len(calls) > _MAX_KNOWN:
            calls.popitem(last=False)
        if count <= _MAX_CALLS_PER_TRACE:
            return False
        self.repeating[agent] = None
        if len(self.repeating) > _MAX_KNOWN:
            self.repeating.popitem(last=False)
        return True


class Upstream(NamedTuple):
    """A choice that was made before this process.

    Attributes:
        probability: None where nothing is known of such a choice.
        same_randomness: It was made by the randomness of the choice here: the two nest instead of
            multiplying.
        unknown: Why the answer's probability is unknown. Empty where it is known.
    """

    probability: float | None = None
    same_randomness: bool = False
    unknown: str = ""

    def applied(self, probability: float | None) -> float | None:
        """Multiply by the upstream probability.

        This leads from "given that it reached us" to "of all responses".
        """
        if self.unknown:
            return None
        if self.probability is None:
            return probability
        if self.same_randomness:
            return nested(probability, self.probability)
        return independent(probability, self.probability)


NOTHING_KNOWN: Final = Upstream()


def upstream_of(
    span_context: SpanContext | None,
    settings: SamplingSettings,
    attribute: object = None,
    *,
    by_trace: bool = True,
    head_ratio: float | None = None,
) -> Upstream:
    """Return what is known of sampling before this process.

    The attribute's value is used first, then the fixed ratio, a trusted ``ot=th``, or the
    application's own head sampler.

    `by_trace`: the choice here was made by the trace's own randomness.
    """
    by_trace_id = by_trace and "trace_id" in settings.trust
    share = known(attribute)
    if share is not None:
        return believed(Upstream(share, by_trace_id), settings)
    if settings.upstream_ratio is not None:
        return Upstream(settings.upstream_ratio, by_trace_id)
    if span_context is not None and "tracestate" in settings.trust:
        fields = _trace_state(span_context)
        if "th" in fields:
            return believed(_of_trace_state(span_context, fields, by_trace=by_trace), settings)
    return NOTHING_KNOWN if head_ratio is None else Upstream(head_ratio, by_trace_id)


def believed(upstream: Upstream, settings: SamplingSettings) -> Upstream:
    """Return the choice of others as far as it is believed.

    A probability below `upstream_least` is unknown. It is never raised to the bound, which
    would bias every sum.
    """
    if upstream.probability is not None and upstream.probability < settings.upstream_least:
        return Upstream(unknown=UPSTREAM_TOO_SMALL)
    return upstream


def _of_trace_state(
    span_context: SpanContext, fields: dict[str, str], *, by_trace: bool
) -> Upstream:
    threshold = _hexadecimal(fields["th"])
    if threshold is None or not span_context.trace_flags.sampled:
        return Upstream(unknown=UPSTREAM_NOT_KEPT)
    if _random_value(span_context, fields) < threshold:
        return Upstream(unknown=UPSTREAM_NOT_KEPT)
    return Upstream(of_threshold(threshold), by_trace)
