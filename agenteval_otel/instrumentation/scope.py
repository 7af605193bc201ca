"""The scope: what is current while a handler runs: the call, for `annotate`, and the call's own span, if it has one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from opentelemetry.context import Context

from agenteval_otel.capture import CURRENT, CapturedCall
from agenteval_otel.instrumentation.current import SPAN_KEY, attach_context, current_context, detach_context

__all__ = ["SCOPE", "Scope"]

SCOPE: Final = "scope"
"""What its failures are counted as; they are those of no call."""


class Scope:
    """Opens and closes scopes; raises nothing.

    Args:
        broken: Told of what broke, as the part ``scope``.
    """

    def __init__(self, broken: Callable[[str, BaseException], None]) -> None:
        self._broken = broken

    def open(self, call: CapturedCall) -> None:
        """Make the call the current one, and its own span the current span, for the code that follows."""
        try:
            call.token = CURRENT.set(call)
            if call.span is not None:
                self._attach(call)
        except Exception as error:
            self._broken(SCOPE, error)

    def close(self, call: CapturedCall) -> None:
        """Undo `open`; a coroutine closed from elsewhere runs in another context, with nothing to undo."""
        token, call.token = call.token, None
        try:
            if token is not None and CURRENT.get() is call:
                CURRENT.reset(token)
            if call.attached is not None:
                self._detach(call)
        except ValueError:
            call.attached = None  # a copy of the context that it was opened in: it ends with that copy
        except Exception as error:
            self._broken(SCOPE, error)

    def around(self, call: CapturedCall, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A step of a stream under the call's own span, which is never held across a yield."""

        def within(value: Any) -> Any:
            self._attach(call)
            try:
                return step(value)
            finally:
                self._detach(call)

        return within

    def around_async(self, call: CapturedCall, step: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Any]:
        """The same for a step that is awaited."""

        async def within(value: Any) -> Any:
            self._attach(call)
            try:
                return await step(value)
            finally:
                self._detach(call)

        return within

    def _attach(self, call: CapturedCall) -> None:
        try:
            if call.span is not None:
                context = Context({**current_context(), SPAN_KEY: call.span})
                call.attached = (context, attach_context(context))
        except Exception as error:
            self._broken(SCOPE, error)

    def _detach(self, call: CapturedCall) -> None:
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
