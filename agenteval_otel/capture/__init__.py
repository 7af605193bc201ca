"""Capture: from a handler's call to an evaluation input.

On the caller's thread, `calls` and `detached` turn the host's objects into plain data. On the background thread,
`build` turns that into an input: `answers` reads it with the registered formats (`formats`, one file per client).
"""

import agenteval_otel.capture.formats  # noqa: F401  # registers the built-in formats
from agenteval_otel.capture.build import Facts
from agenteval_otel.capture.fields import field, usage_of
from agenteval_otel.capture.messages import Turn
from agenteval_otel.capture.reading import Reading, response_format

__all__ = ["Facts", "Reading", "Turn", "field", "response_format", "usage_of"]
