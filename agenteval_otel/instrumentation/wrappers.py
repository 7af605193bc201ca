"""Wrappers for a handler's four shapes, and `annotate`, which adds to the call that they run.

The shapes are function, coroutine function, generator and async generator. Outside they are
unchanged.

Each wrapper is a real function of the same kind as what it wraps, and one piece: each function
called within it would double what a chunk, or an unsampled call, costs. The local variable ``call``
in these frames is how `annotate` finds the call that the running code belongs to. What a stream's
consumer sends or throws is passed on outside of any ``except`` block, so that it does not become
the context of what the handler raises later.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from itertools import chain, islice
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final, Unpack

from opentelemetry import trace

from agenteval_otel.capture import Facts
from agenteval_otel.capture.calls import CURRENT, STREAM_CHARS, CapturedCall
from agenteval_otel.capture.detached import take
from agenteval_otel.capture.fields import MAX_ITEMS
from agenteval_otel.capture.formats.web import (
    app_with,
    pieces_later,
    pieces_of,
    sockets_among,
    streamed_body,
)
from agenteval_otel.capture.reference import Reference
from agenteval_otel.capture.text import clean
from agenteval_otel.components.explained import known_choices
from agenteval_otel.config.process import default_pipeline
from agenteval_otel.config.settings import load_storage
from agenteval_otel.engine.agent_settings import AgentSettings
from agenteval_otel.engine.handler import HandlerSettings, check_escalation
from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.engine.task import HandlerCall
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.instrumentation.handler import Handler
from agenteval_otel.models import StreamEnd
from agenteval_otel.runtime.log import log
from agenteval_otel.sampling import Escalation
from agenteval_otel.semconv import PIPELINE_FAILED

_MAX_FACTS = 64
_AGENTS = "__agenteval_agents__"
"""The attribute of a monitored handler with the names of its agents.

Decorators that wrap the handler copy it.
"""
_MAX_CALLS = MAX_ITEMS + 1  # one more than is read: it tells that there were more


_ARGUMENTS: Final = (
    "agent",
    "evaluators",
    "sample_rate",
    "sampler",
    "escalation",
    "capture",
    "storage",
    "pipeline",
)


def refuse_unknown(arguments: Mapping[str, Any]) -> None:
    """Raise `ConfigurationError` for arguments that `monitor` does not have."""
    for name in arguments:  # the first of them, if there is one
        raise ConfigurationError(f"unknown argument{known_choices(name, _ARGUMENTS)}", path=name)


def decorated(
    handler: Any,
    *,
    agent: Any,
    evaluators: Any,
    sample_rate: Any,
    sampler: Any,
    escalation: Any,
    capture: Any,
    storage: Any,
    pipeline: Pipeline | None,
) -> Any:
    """Return the wrapped handler, or a decorator if no handler was passed yet."""
    can_be_called = callable(handler) or isinstance(handler, classmethod | staticmethod)
    if handler is not None and not can_be_called:
        hint = f". Did you mean agent={handler!r}?" if isinstance(handler, str) else ""
        if isinstance(handler, property | functools.cached_property):
            hint = ": put @monitor below it, on the function"
        raise ConfigurationError(
            f"expected a callable, found {type(handler).__name__}{hint}", path="handler"
        )
    written = written_in_code(evaluators, sample_rate, sampler, escalation)
    providers = None if storage is None else load_storage(storage)
    check_agent(agent)
    check_function(capture, "capture")

    def decorate(function: Any) -> Any:
        if isinstance(function, classmethod | staticmethod):
            return type(function)(decorate(function.__func__))
        if inspect.isclass(function):
            raise ConfigurationError(
                f"{function.__name__} is a class: decorate its method", path="handler"
            )
        own_name = getattr(function, "__qualname__", None) or type(function).__qualname__
        name = clean(agent or own_name, 256)
        _check_place(function, name)
        if capture is None:
            _check_answers(function, name)

        def settings_for(used: Pipeline) -> HandlerSettings:
            return used.handler(
                name, written, storage=providers, capture=capture, function=function
            )

        monitored_handler = Handler(
            name,
            function,
            settings_for,
            pipeline or default_pipeline(),
            follows=pipeline is None,
            keep_arguments=capture is not None,
        )
        wrapped = wrap(function, monitored_handler)
        other_agents = getattr(function, _AGENTS, ())
        setattr(wrapped, _AGENTS, (name, *other_agents))
        return wrapped

    return decorate if handler is None else decorate(handler)


def written_in_code(
    evaluators: Any, sample_rate: Any, sampler: Any, escalation: Any
) -> AgentSettings:
    """Return the arguments of a decorator or of middleware as an agent's entry.

    Raise `ConfigurationError` if they are wrong.
    """
    written = AgentSettings(
        evaluators=evaluators, sample_rate=sample_rate, sampler=sampler, escalation=escalation
    )
    if isinstance(written.escalation, Escalation) and written.evaluators is not None:
        check_escalation(written.escalation, written.evaluators)
    return written


def check_agent(agent: object) -> None:
    if agent is not None and (not isinstance(agent, str) or not agent.strip()):
        raise ConfigurationError(f"expected a name, found {agent!r}", path="agent")


def check_function(function: object, path: str) -> None:
    if function is not None and not callable(function):
        raise ConfigurationError(f"expected a function, found {type(function).__name__}", path=path)


def _check_place(function: object, name: str) -> None:
    """Refuse a handler that is monitored under this name already.

    Warn if a route has it without `monitor`.
    """
    if name in getattr(function, _AGENTS, ()):
        raise ConfigurationError(
            f"{name} is monitored already: each answer would be scored twice", path="handler"
        )
    app = app_with(function, sys._getframe(1))
    if app is not None:
        fix = "put @monitor below the route's decorator, so that the route calls it"
        log.warning(
            "monitored_too_late",
            part=name,
            reason=f"{app} has the handler without @monitor",
            fix=fix,
        )


def _check_answers(function: Any, name: str) -> None:
    """Refuse the handler of a WebSocket, whose answers are what it sends and not what it returns.

    One that says by its return type, or by a yield, that it gives an answer is taken.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return
    if signature.return_annotation not in (inspect.Signature.empty, None, "None", Any, "Any"):
        return
    sockets = sockets_among(function)
    if sockets:
        raise ConfigurationError(
            f"{name} has a WebSocket ({sockets[0]}) and returns no answer: put @monitor on the "
            "function that makes one answer, such as `async def answer(question: str) -> str`, or "
            'have AgentEvalMiddleware evaluate each message: routes={"WS /chat": "support"}. If it '
            "does return the answer, say so by its return type, such as `-> str`",
            path="handler",
        )


def wrap(function: Callable[..., Any], handler: Handler) -> Callable[..., Any]:
    """Return the monitored form of a handler, by its kind.

    A callable object counts as what its ``__call__`` is.
    """
    shape = function
    if not inspect.isroutine(function) and not isinstance(function, functools.partial):
        shape = type(function).__call__
    make: Callable[..., Callable[..., Any]]
    if inspect.isasyncgenfunction(shape):
        make = _async_generator
    elif inspect.isgeneratorfunction(shape):
        make = _generator
    elif inspect.iscoroutinefunction(shape):
        make = _coroutine
    else:
        make = _function
    monitored = make(function, handler)
    return functools.wraps(function)(monitored)


def unmonitored(function: Any) -> Any:
    """Return the handler below our own wrappers, or what was given."""
    while getattr(function, "__globals__", None) is globals():
        function = function.__wrapped__
    return function


def _function(function: Callable[..., Any], handler: Handler) -> Callable[..., Any]:
    enter = handler.enter
    current = CURRENT.get
    handler.scoped = True

    def monitored(*args: Any, **kwargs: Any) -> Any:
        try:
            call = None
            binding = handler.binding
            # Unsampled calls make no further call, except within another monitored one.
            if current() is not None:
                call = enter(args, kwargs)
            elif not binding.pipeline.enabled:
                binding.unsampled.disabled += 1
            elif binding.settings.is_idle:
                binding.unsampled.not_sampled += 1
            else:
                call = enter(args, kwargs)
        except Exception:
            # The host's stack is exhausted: there is room to count, and for nothing else.
            call = None
            handler.binding.outcomes[PIPELINE_FAILED] += 1
        if call is None:
            return function(*args, **kwargs)
        try:
            answer = function(*args, **kwargs)
        except BaseException as error:
            _leave(handler, call, None, error)
            raise
        follow = _FOLLOW.get(id(type(answer)))
        if follow is not None:
            handler.scope.close(call)
            return follow(lambda: answer, handler, call)()
        _leave(handler, call, answer)
        return answer

    return monitored


def _coroutine(
    function: Callable[..., Any], handler: Handler, entered: HandlerCall | None = None
) -> Any:
    enter = handler.enter
    current = CURRENT.get
    handler.scoped = True

    async def monitored(*args: Any, **kwargs: Any) -> Any:
        try:
            call = entered
            binding = handler.binding
            if call is not None:  # begun by a function that returned this coroutine
                pass
            elif current() is not None:
                call = enter(args, kwargs)
            elif not binding.pipeline.enabled:
                binding.unsampled.disabled += 1
            elif binding.settings.is_idle:
                binding.unsampled.not_sampled += 1
            else:
                call = enter(args, kwargs)
        except Exception:  # as above
            call = None
            handler.binding.outcomes[PIPELINE_FAILED] += 1
        if call is None:
            return await function(*args, **kwargs)
        try:
            answer = await function(*args, **kwargs)
        except BaseException as error:
            _leave(handler, call, None, error)
            raise
        follow = _FOLLOW.get(id(type(answer)))
        if follow is not None:
            handler.scope.close(call)
            return follow(lambda: answer, handler, call)()
        _leave(handler, call, answer)
        return answer

    return monitored


def _generator(
    function: Callable[..., Any], handler: Handler, entered: HandlerCall | None = None
) -> Any:
    def monitored(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        stream = function(*args, **kwargs)
        call = entered or _enter(handler, args, kwargs)
        chunks: list[Any] = []
        chars_left = STREAM_CHARS if call is not None and call.is_kept else 0
        send = stream.send
        throw = stream.throw
        if call is not None and call.span is not None:
            send = handler.scope.around(call, send)
            throw = handler.scope.around(call, throw)
        resume = send
        sent = None
        closing = False
        end: StreamEnd = "error"
        problem: BaseException | None = None
        try:
            while True:
                try:
                    chunk = resume(sent)
                except StopIteration as stop:
                    end = "abandoned" if closing else "completed"
                    return stop.value
                if chars_left > 0:
                    if type(chunk) is str:
                        chars_left -= len(chunk) or 1
                        chunks.append(chunk)
                    else:
                        chars_left -= _kept(call, chunk, chunks)
                try:
                    sent = yield chunk
                    resume = send
                except BaseException as thrown:
                    resume = throw
                    sent = thrown
                    closing = isinstance(thrown, GeneratorExit)
        except GeneratorExit:
            end = "abandoned"
            raise
        except BaseException as error:
            problem = error
            raise
        finally:
            sent = None
            _leave(handler, call, None, problem, (chunks, end, chars_left <= 0))
            problem = None  # the frame and its exception must not hold each other

    return monitored


def _async_generator(
    function: Callable[..., Any], handler: Handler, entered: HandlerCall | None = None
) -> Any:
    async def monitored(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        stream = function(*args, **kwargs)
        call = entered or _enter(handler, args, kwargs)
        chunks: list[Any] = []
        chars_left = STREAM_CHARS if call is not None and call.is_kept else 0
        first = _first_send(stream)
        send = stream.asend
        throw = stream.athrow
        if call is not None and call.span is not None:
            first = handler.scope.around_async(call, first)
            send = handler.scope.around_async(call, send)
            throw = handler.scope.around_async(call, throw)
        resume = first
        sent = None
        closing = False
        end: StreamEnd = "error"
        problem: BaseException | None = None
        try:
            while True:
                try:
                    chunk = await resume(sent)
                except StopAsyncIteration:
                    end = "abandoned" if closing else "completed"
                    return
                if chars_left > 0:
                    if type(chunk) is str:
                        chars_left -= len(chunk) or 1
                        chunks.append(chunk)
                    else:
                        chars_left -= _kept(call, chunk, chunks)
                try:
                    sent = yield chunk
                    resume = send
                except BaseException as thrown:
                    resume = throw
                    sent = thrown
                    closing = isinstance(thrown, GeneratorExit)
        except (GeneratorExit, asyncio.CancelledError):
            end = "abandoned"  # a server cancels the task of a client that has gone
            raise
        except BaseException as error:
            problem = error
            raise
        finally:
            sent = None
            _leave(handler, call, None, problem, (chunks, end, chars_left <= 0))
            problem = None

    return monitored


# These also work on a nearly exhausted stack: each needs one frame, as the handler itself does.


def _enter(handler: Handler, args: tuple[Any, ...], kwargs: dict[str, Any]) -> HandlerCall | None:
    try:
        return handler.enter(args, kwargs)
    except Exception:
        handler.binding.outcomes[PIPELINE_FAILED] += 1
        return None


def _kept(call: HandlerCall | None, chunk: object, chunks: list[Any]) -> int:
    """Keep a chunk that is no text. Return what it takes of the stream's cap."""
    try:
        return 0 if call is None else call.keep_chunk(chunk, chunks)
    except Exception:
        return STREAM_CHARS  # the rest of the stream is not kept


def _leave(
    handler: Handler,
    call: HandlerCall | None,
    answer: object,
    error: BaseException | None = None,
    stream: tuple[list[Any], StreamEnd, bool] | None = None,
) -> None:
    """End a call. `stream` has the chunks, how the stream ended, and whether some were not kept."""
    if call is None:
        return
    if id(type(answer)) not in _NO_RESPONSE:
        is_followed = _follow_future(handler, call, answer) or _follow_body(handler, call, answer)
        if is_followed:  # the call ends later
            return
    try:
        if stream is not None:
            call.keep_stream(*stream)
        handler.leave(call, answer, error)
    except Exception:
        if not call.settled:
            handler.binding.outcomes[PIPELINE_FAILED] += 1
        call.settled = True


def _first_send(stream: AsyncGenerator[Any, Any]) -> Callable[[Any], Any]:
    """Return the first step of an inner stream, hidden from the event loop's hooks.

    The loop tracks the outer stream, and would close both concurrently when it ends.
    """

    def send(value: object) -> Any:
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(None, None)
        try:
            return stream.asend(value)
        finally:
            sys.set_asyncgen_hooks(*hooks)

    return send


def _follow_body(handler: Handler, call: HandlerCall, answer: object) -> bool:
    """Follow the body of a web framework's response if it is streamed, and return whether it is.

    The call then ends with the body.

    The response stays the host's own object, and its pieces pass as they come.
    """
    try:
        body = streamed_body(answer)
        if body is None:
            return False
        name, pieces = body
        is_async = hasattr(pieces, "__aiter__")
        if id(type(pieces)) not in _FOLLOW:
            pieces = pieces_later(pieces) if is_async else pieces_of(pieces)
        follow = _async_generator if is_async else _generator
        followed = follow(lambda: pieces, handler, call)()
        setattr(answer, name, followed)
    except Exception:  # it goes out as it is, and counts as what cannot be read
        return False
    handler.scope.close(call)
    return True


def _follow_future(handler: Handler, call: HandlerCall, answer: Any) -> bool:
    """Follow a task or a future. Return whether the answer is one: the call ends when it is done.

    The host gets its own object, which only has one more callback.
    """
    kind = type(answer)
    try:
        if not issubclass(kind, _FUTURES):
            return False
        handler.scope.close(call)
        if answer.done():
            _leave_done(handler, call, answer)
        else:
            answer.add_done_callback(functools.partial(_leave_done, handler, call))
    except Exception:  # of a class of the host's own: it counts as what cannot be read
        return False
    return True


def _leave_done(handler: Handler, call: HandlerCall, future: Any) -> None:
    """End a call with the outcome of a future that is done."""
    answer: Any = None
    error: BaseException | None = None
    try:
        if future.cancelled():
            error = asyncio.CancelledError()
        else:
            # `exception()` would silence the event loop's line on an exception that is never read.
            error = future._exception
            answer = future.result() if error is None else None
    except BaseException as failure:
        error = failure
    _leave(handler, call, answer, error)


_Follow = Callable[[Callable[..., Any], Handler, HandlerCall], Callable[..., Any]]
_FUTURES = (asyncio.Future, concurrent.futures.Future)
# Types are looked up by id: hashing a class may run its metaclass's code.
_NO_RESPONSE = frozenset(map(id, (str, bytes, int, float, bool, type(None), dict, list, tuple)))
# What a handler returns instead of answering is followed to its end: the answer is what comes out
# of it.
_FOLLOW: dict[int, _Follow] = {
    id(GeneratorType): _generator,
    id(AsyncGeneratorType): _async_generator,
    id(CoroutineType): _coroutine,
}


def annotate(**facts: Unpack[Facts]) -> None:
    """Add facts to the monitored call that is running. Never raises.

    It does nothing outside of a sampled call.

    Facts are detached from the host when the handler ends, and read on the background thread. Type
    checkers refuse an unknown fact. At run time it is counted as ``annotate:<name>`` and left out,
    like a value of the wrong type.

    Args:
        facts: Any of the keywords of `agenteval_otel.capture.Facts`. ``context`` is a mapping or a
            list of documents, ``cost`` is in USD. ``tool_calls`` and ``tags`` are added to those
            set before, any other fact replaces the earlier one. Results are sliced by
            ``prompt_name``, ``prompt_version``, ``user_id`` (hashed), ``environment``,
            ``experiment`` and ``arm``, and up to 16 ``tags``: attributes of spans and events,
            columns in storage.
    """
    try:
        call = _running_call()
        if call is None or not call.is_kept:
            return
        known = call.facts or {}
        call.facts = known
        for name, value in dict[str, Any](facts).items():
            before = known.get(name)
            if (
                name == "tool_calls"
                and isinstance(value, list | tuple)
                and isinstance(before, list | tuple)
            ):
                room = max(0, _MAX_CALLS - len(before))
                value = [*before, *islice(value, room)]
            elif name == "tags" and type(value) is dict and type(before) is dict:
                tags = chain(before.items(), value.items())
                value = dict(islice(tags, _MAX_FACTS))
            if name in known or len(known) < _MAX_FACTS:
                # Once the call has ended, it must not refer to host objects.
                known[name] = take(value).value if call.ended_ns else value
    except Exception:
        return


def evaluation_reference() -> str:
    """Return a reference to the monitored call that is running, sampled or not.

    It is there to be handed to whatever collects feedback.

    Send it with the answer, and pass it to `record_feedback` or `record_score` when the user has
    spoken. It holds the ids of the call, its trace and its span, and the agent's name. It holds no
    content. It is not signed: who may send feedback is for the application to say. Of a sampled
    call it is the same every time. Of another one each has an id of its own, and the same span.
    Never raises.
    """
    try:
        call = _running_call()
        span_context = None if call is None else call.span_context
        agent = "" if call is None else call.agent
        if span_context is None:
            current = trace.get_current_span().get_span_context()
            if current.is_valid:
                span_context = current
        return str(Reference.to(call, span_context, agent))
    except Exception:
        return ""


def _running_call() -> CapturedCall | None:
    """Return the innermost monitored call on this stack.

    In a task or thread that a handler started, it is the inherited one.

    A stream runs in the context of its consumer, where a context variable would leak into what is
    done between two chunks. Its frame is looked for instead: 3 us, and 9 us below 50 other frames,
    which only those pay who annotate.
    """
    frame: Any = sys._getframe(2)
    while frame is not None:
        # Where a wrapper's inner function uses it, the variable is a cell.
        if frame.f_globals is globals() and "call" in (
            *frame.f_code.co_varnames,
            *frame.f_code.co_cellvars,
        ):
            call: CapturedCall | None = frame.f_locals.get("call")
            return call
        frame = frame.f_back
    return CURRENT.get()
