"""Capture: from a handler's call to an evaluation input.

`calls` and `parameters` hold what the caller's thread takes (references); `shapes`, `responses`, `text` and `build`
what the pool's thread makes of it; `snapshots` says of what was taken by reference whether it may have changed since;
`redaction` and `outgoing` take out what must not leave the process.
"""

from agenteval_otel.capture.build import FACTS, build_input
from agenteval_otel.capture.calls import CURRENT, EVALUATING, CapturedCall, estimate_bytes, snapshot
from agenteval_otel.capture.parameters import Arguments, ConversationParameter, OtherParameters, PromptParameter

__all__ = [
    "CURRENT",
    "EVALUATING",
    "FACTS",
    "Arguments",
    "CapturedCall",
    "ConversationParameter",
    "OtherParameters",
    "PromptParameter",
    "build_input",
    "estimate_bytes",
    "snapshot",
]
