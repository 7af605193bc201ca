"""Capture: from the host's objects to plain data, and from plain data to an evaluation input.

`calls` and `detached` turn the host's objects into plain data on the caller's thread. On the
background thread, `build` turns that into an input, and `answers` reads it with the registered
formats (one file per client).
"""

import agenteval_otel.capture.formats  # noqa: F401  # registers the built-in formats
from agenteval_otel.capture.build import Facts
from agenteval_otel.capture.fields import field, usage_of
from agenteval_otel.capture.messages import Turn
from agenteval_otel.capture.reading import Reading, response_format

__all__ = ["Facts", "Reading", "Turn", "field", "response_format", "usage_of"]
