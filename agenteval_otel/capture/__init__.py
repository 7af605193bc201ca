"""Capture: from a handler's call to an evaluation input.

On the caller's thread, `detached` (with `type_readers` and `values`), `calls` and `parameters` turn the host's objects
into plain data. On the background thread, `build` turns that into an input: `answers`, `streams` and `prompts` read it
with the registered response formats (`formats`, one file per client library).
"""

import agenteval_otel.capture.formats  # noqa: F401  # registers the built-in formats
from agenteval_otel.capture.build import Facts, build_input
from agenteval_otel.capture.calls import CURRENT, EVALUATING, CapturedCall
from agenteval_otel.capture.detached import Taken, take
from agenteval_otel.capture.fields import field, usage_of
from agenteval_otel.capture.messages import Turn
from agenteval_otel.capture.parameters import Arguments
from agenteval_otel.capture.reading import Reading
from agenteval_otel.capture.response_formats import response_format
from agenteval_otel.capture.tool_calls import Call
from agenteval_otel.capture.values import Detached, Unreadable

__all__ = [
    "CURRENT", "EVALUATING", "Arguments", "Call", "CapturedCall", "Detached", "Facts", "Reading", "Taken", "Turn",
    "Unreadable", "build_input", "field", "response_format", "take", "usage_of",
]  # fmt: skip
