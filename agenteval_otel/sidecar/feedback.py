"""Feedback over HTTP: ``POST /v1/feedback``."""

from __future__ import annotations

from typing import Final

from agenteval_otel.capture.otlp.body import BodyError, Full, strict_json
from agenteval_otel.errors import AgentEvalError
from agenteval_otel.instrumentation.feedback.payload import (
    OfAnswer,
    OfApplication,
    OfPerson,
    OfTruth,
)
from agenteval_otel.instrumentation.feedback.recorder import RECORDER

MAX_BYTES: Final = 1024 * 1024
_MAX_ITEMS: Final = 1_000


def take_feedback(body: bytes) -> int:
    """Take what a body says, an object or a list of objects, and return their number.

    An object holds the arguments of `record_feedback`. With a ``value`` it holds those of
    `record_score`, and with a ``ground_truth`` those of `record_ground_truth`.

    Raises `BodyError` if one of them is wrong, and `Full` if there is no room. If one of a list is
    wrong, nothing of the list is taken.
    """
    _, value = strict_json(body)
    items = value if isinstance(value, list) else [value]
    if len(items) > _MAX_ITEMS:
        raise BodyError(413, f"more than {_MAX_ITEMS:,} in one request")
    payloads = []
    for place, item in enumerate(items):
        try:
            payloads.append(_payload(item).feedback())
        except AgentEvalError as error:
            raise BodyError(400, f"[{place}] {error}" if len(items) > 1 else str(error)) from None
    for feedback in payloads:
        if not RECORDER.take(feedback):
            raise Full
    return len(payloads)


def _payload(item: object) -> OfAnswer:
    if not isinstance(item, dict):
        raise BodyError(400, 'expected an object such as {"reference": "...", "thumbs": "down"}')
    if "ground_truth" in item:
        return OfTruth(**item)
    if "value" in item:
        return OfApplication(**item)
    return OfPerson(**item)
