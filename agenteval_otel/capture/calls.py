"""The captured call: references only, taken on the caller's thread.

Nothing is copied, serialised or measured in proportion to the payload here. Text is immutable and travels by reference;
a mutable list or dictionary gets one shallow, bounded snapshot, so that what is judged is what was returned. Of an
exception only the class name is kept: the object would hold the host's frames.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from agenteval_otel.capture.sizes import estimate_bytes
from agenteval_otel.models import StreamEnd

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext

    from agenteval_otel.sampling.base import SamplingDecision

__all__ = ["CURRENT", "EVALUATING", "CapturedCall", "PromptParameter", "estimate_bytes", "snapshot"]

_SNAPSHOT_ITEMS: Final = 1_000
_PROMPT_NAMES: Final = (
    "prompt", "question", "query", "user_prompt", "user_input", "user_message", "message", "messages", "input",
    "inputs", "text", "content", "request",
)  # fmt: skip


class CapturedCall:
    """One call of a monitored handler on its way to the evaluators; filled in as the call proceeds."""

    __slots__ = (
        "__weakref__",
        "agent",
        "answer",
        "arguments",
        "attached",
        "chunks",
        "decision",
        "draw",
        "ended_ns",
        "error_type",
        "facts",
        "plan",
        "prompt",
        "settled",
        "span",
        "span_context",
        "started_ns",
        "started_tick",
        "stream_end",
        "token",
    )  # fmt: skip

    def __init__(self, plan: Any, agent: str) -> None:
        self.plan = plan
        self.agent = agent
        self.prompt: Any = None
        self.arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self.answer: Any = None
        self.chunks: list[Any] | None = None
        self.error_type: str | None = None
        self.stream_end: StreamEnd | None = None
        self.span_context: SpanContext | None = None
        self.span: Span | None = None
        self.attached: Any = None
        self.token: Any = None
        self.decision: SamplingDecision | None = None
        self.draw = 0
        self.started_ns = 0
        self.started_tick = 0
        self.ended_ns = 0
        self.facts: dict[str, Any] | None = None
        self.settled = False

    def let_go(self) -> None:
        """Forget what the host's code made, once the evaluation input is built: a judge may take its time."""
        self.prompt = self.arguments = self.answer = self.chunks = self.facts = None

    def __repr__(self) -> str:
        return f"<CapturedCall {self.agent} {self.error_type or self.stream_end or 'answered'}>"


EVALUATING: Final = CapturedCall(None, "evaluation")
"""Stands in `CURRENT` while evaluators run: doors that see it step aside, so evaluations are never evaluated."""

CURRENT: Final[ContextVar[CapturedCall | None]] = ContextVar("agenteval_current_call", default=None)
"""The monitored call that the running code belongs to; None outside and inside calls that were not sampled."""


class PromptParameter:
    """Finds the prompt among a handler's arguments: by an obvious name, else the first that is not self or cls."""

    __slots__ = ("index", "name")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.index, self.name = 0, "prompt"
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            return
        if parameters and parameters[0].name in ("self", "cls"):
            self.index, self.name = 1, ""
        usable = [p for p in parameters[self.index :] if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        by_name = {p.name: p for p in usable}
        chosen = next((by_name[name] for name in _PROMPT_NAMES if name in by_name), usable[0] if usable else None)
        if chosen is not None:
            self.name = chosen.name
            # A keyword-only parameter is never found by position.
            self.index = sys.maxsize if chosen.kind is chosen.KEYWORD_ONLY else parameters.index(chosen)

    def of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The prompt as it was passed; None when it was not."""
        if len(args) > self.index:
            return args[self.index]
        return kwargs.get(self.name)


def snapshot(value: Any) -> Any:
    """A shallow copy of a plain list or dictionary of at most 1,000 items; anything else as it is."""
    kind = type(value)
    if (kind is list or kind is dict) and len(value) <= _SNAPSHOT_ITEMS:
        return value.copy()
    return value
