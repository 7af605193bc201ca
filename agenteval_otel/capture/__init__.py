"""Capture: from a handler's call to an evaluation input.

`calls` holds what the caller's thread takes (references), `responses`, `text` and `build` what the pool's thread makes
of it.
"""

from agenteval_otel.capture.build import FACTS, build_input
from agenteval_otel.capture.calls import CURRENT, EVALUATING, CapturedCall, PromptParameter, estimate_bytes, snapshot

__all__ = [
    "CURRENT",
    "EVALUATING",
    "FACTS",
    "CapturedCall",
    "PromptParameter",
    "build_input",
    "estimate_bytes",
    "snapshot",
]
