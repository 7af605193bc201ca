"""The scope: the current call, for `annotate`, and the current span, while a handler runs.

`trace.get_current_span` takes more than half of an unsampled call's time budget, and making a span
current and undoing it takes ten function calls. What they look up is probed once, at import. If it
is not as expected, the public functions are used.
"""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable
from typing import Any, Final

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext, TraceFlags, TraceState

from agenteval_otel.capture.calls import CURRENT
from agenteval_otel.engine.task import HandlerCall

SCOPE: Final = "scope"
"""The part that scope failures count as. They change no call's outcome."""
SPAN_KEY: Final = next(iter(trace.set_span_in_context(trace.INVALID_SPAN, Context())))
"""The key of the span in a context."""


def _context_functions() -> tuple[
    Callable[[], Context], Callable[[Context], Any], Callable[[Any], None]
]:
    """Return the functions of the variable that has the current context.

    They are the public ones if the host keeps the context elsewhere.
    """
    ours = Context({"agenteval": "which variable is it"})
    token = otel_context.attach(ours)
    try:
        for variable, value in contextvars.copy_context().items():
            if value is ours:
                return variable.get, variable.set, variable.reset
        return otel_context.get_current, otel_context.attach, otel_context.detach
    finally:
        otel_context.detach(token)


def _has_expected_layout() -> bool:
    """Tell whether a span context is the tuple that `PLAIN` describes."""
    state = TraceState([("agenteval", "1")])
    probe: Any = SpanContext(3, 5, False, TraceFlags(1), state)
    is_tuple = isinstance(probe, tuple) and len(probe) == 6
    return (
        is_tuple
        and probe[0] == 3
        and probe[4] == state
        and probe[5] is True
        and SpanContext(0, 0, False)[5] is False
    )


current_context, attach_context, detach_context = contextvars.copy_context().run(_context_functions)
PLAIN: Final[type[Any] | None] = SpanContext if _has_expected_layout() else None
"""The type of span contexts if these are tuples as expected, else None.

The places of a tuple are trace id, span id, remote, flags, state (4) and validity (5).
"""


class Scope:
    """Opens and closes scopes.

    Raises nothing: `broken` gets the part ``scope`` and the error.
    """

    def __init__(self, broken: Callable[[str, BaseException], None]) -> None:
        self._broken = broken

    def open(self, call: HandlerCall) -> None:
        """Make the call the current one, and its own span the current span.

        They are current for the code that follows.
        """
        try:
            call.token = CURRENT.set(call)
            if call.span is not None:
                self._attach(call)
        except Exception as error:
            self._broken(SCOPE, error)

    def close(self, call: HandlerCall) -> None:
        """Undo `open`.

        A coroutine closed from elsewhere runs in another context, with nothing to undo.
        """
        token = call.token
        call.token = None
        try:
            if token is not None and CURRENT.get() is call:
                CURRENT.reset(token)
        except ValueError:
            # a copy of the context that it was opened in: it ends with that copy
            call.attached = None
        except Exception as error:
            self._broken(SCOPE, error)
        if call.attached is not None:
            self._detach(call)

    def around(self, call: HandlerCall, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a step of a stream under the call's own span.

        The span is never current across a yield.
        """

        def within(value: object) -> Any:
            self._attach(call)
            try:
                return step(value)
            finally:
                self._detach(call)

        return within

    def around_async(
        self, call: HandlerCall, step: Callable[[Any], Awaitable[Any]]
    ) -> Callable[[Any], Any]:
        """Return a step that is awaited, under the call's own span as `around` does."""

        async def within(value: object) -> Any:
            self._attach(call)
            try:
                return await step(value)
            finally:
                self._detach(call)

        return within

    def _attach(self, call: HandlerCall) -> None:
        try:
            if call.span is not None:
                context = Context({**current_context(), SPAN_KEY: call.span})
                call.attached = (context, attach_context(context))
        except Exception as error:
            self._broken(SCOPE, error)

    def _detach(self, call: HandlerCall) -> None:
        try:
            if call.attached is not None:
                context, token = call.attached
                call.attached = None
                if current_context() is context:
                    detach_context(token)
        except ValueError:
            return  # a copy of the context, as in `close`
        except Exception as error:
            self._broken(SCOPE, error)
