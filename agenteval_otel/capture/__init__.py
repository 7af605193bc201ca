"""Capture: from a handler's call to an evaluation input.

`detached` (with `type_readers` and `values`), `calls` and `parameters` take what is the host's as plain data of ours,
on the caller's thread; `shapes`, `text` and `build` are what the background thread makes of it.
"""

from agenteval_otel.capture.build import build_input
from agenteval_otel.capture.calls import CURRENT, EVALUATING, CapturedCall
from agenteval_otel.capture.detached import Taken, take
from agenteval_otel.capture.parameters import Arguments, ConversationParameter, OtherParameters, PromptParameter
from agenteval_otel.capture.values import Detached, Unreadable

__all__ = [
    "CURRENT",
    "EVALUATING",
    "Arguments",
    "CapturedCall",
    "ConversationParameter",
    "Detached",
    "OtherParameters",
    "PromptParameter",
    "Taken",
    "Unreadable",
    "build_input",
    "take",
]
