"""CallableJudge: an object that generates text, by the method names of several libraries."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias

from pydantic import Field, SerializeAsAny, model_validator

from agenteval_otel.capture.redaction import PatternRedactor
from agenteval_otel.components.explained import suggestion
from agenteval_otel.components.loading import resolve_or_wrap
from agenteval_otel.errors import ConfigurationError, JudgeError
from agenteval_otel.evaluators.judges.answers import JudgeRequest, Verdict, parse_answer
from agenteval_otel.evaluators.judges.base import Judge
from agenteval_otel.runtime.masking import message_of

_METHODS: Final = ("generate", "generate_text", "complete", "ainvoke", "invoke", "ask", "judge")
_MAX_CHARS: Final = 262_144
_MAX_CAUSE_CHARS: Final = 240
_MAX_HUNG: Final = 16
_MALFORMED: Final = "malformed_answer"
_FORMS: Final = (
    "write 'anthropic:<model>', 'openai:<model>' or 'openai_compatible:<model>@http://<host>/v1'"
)
_TEXT_NAMES: Final = ("text", "content", "output", "message")


class _Generates(Protocol):
    @property
    def generate(self) -> Callable[..., Any]: ...


class _Invokes(Protocol):
    @property
    def invoke(self) -> Callable[..., Any]: ...


JudgeLike: TypeAlias = Judge | str | Mapping[str, Any] | Callable[..., Any] | _Generates | _Invokes
"""A judge, ``type:model``, ``{"type": ...}`` with its settings, or a function or object that
generates text.
"""

if TYPE_CHECKING:

    class JudgeField:
        """A field that takes what `as_judge` does, and is a `Judge`."""

        def __get__(self, instance: object, owner: type[object] | None = None) -> Judge: ...
        def __set__(self, instance: object, value: JudgeLike) -> None: ...
else:
    JudgeField = SerializeAsAny[Judge]


class CallableJudge(Judge):
    """Asks an object of the program's that generates text, as a judge.

    Limits and retries are left to the object.

    An ``async def`` runs on the loop, a plain function or method on a thread of its own. After 16
    calls that never return, further calls fail at once (``timeout``) until one of them returns.

    Attributes:
        name: Names the object in the fingerprint of the evaluator that uses it.
        target: A function of the prompt, or an object with one of ``generate``, ``generate_text``,
            ``complete``, ``ainvoke``, ``invoke``, ``ask``, ``judge``. It gets the prompt, with the
            instruction before it or in its parameter ``system`` (``system_prompt``,
            ``systemPrompt``), or both as ``messages``, or all of it as ``request``. It returns a
            text, or something with ``text`` or ``content``. Left out of dumps.
        deadline_s: Seconds until a call is given up. The thread of a plain function goes on.
    """

    name: str = ""
    target: Any = Field(exclude=True)
    deadline_s: float = Field(default=30.0, gt=0, le=600)

    @model_validator(mode="after")
    def _is_known_by_name(self) -> Self:
        if self.cache is not None and self.cache.path is not None and not self.name:
            raise ValueError(
                "a cache file needs a 'name' here: it separates its verdicts from those of other objects"
            )
        return self

    @classmethod
    def of(cls, target: Any) -> Self:
        """Wrap the object as a judge, named after its class. A function is named after itself."""
        kind = target if inspect.isroutine(target) else type(target)
        return cls(name=f"{kind.__module__}.{kind.__qualname__}", target=target)

    async def judge(self, request: JudgeRequest) -> Verdict:
        """Return the object's answer.

        Raises `JudgeError` for whatever the object raises, and for an answer that is empty, too
        long or unreadable.
        """
        started = time.monotonic()
        positional, named = _arguments(self._method, request)
        try:
            async with asyncio.timeout(self.deadline_s):
                if inspect.iscoroutinefunction(self._method):
                    result = await self._method(*positional, **named)
                else:
                    result = await self._on_a_thread(lambda: self._method(*positional, **named))
                    if inspect.isawaitable(result):
                        result = await result
        except (Exception, SystemExit) as error:
            # SystemExit would end the loop, and every evaluation on it.
            raise _failure_of(error) from None
        if isinstance(result, Verdict):
            return result
        text = _text_of(result)
        if len(text) > _MAX_CHARS:
            raise JudgeError(
                f"the judge's answer is longer than {_MAX_CHARS} characters", error_type=_MALFORMED
            )
        if not text.strip():
            raise JudgeError("the judge's answer is empty", error_type="empty_answer")
        answer = parse_answer(text) if request.answer_form else {}
        duration_s = time.monotonic() - started
        return Verdict(answer=answer, raw=text, model=self.model, duration_s=duration_s)

    async def _on_a_thread(self, function: Callable[[], Any]) -> Any:
        """Run the function in the caller's context on a new daemon thread.

        The loop's executor has few threads.
        """
        self._hung.difference_update([thread for thread in self._hung if not thread.is_alive()])
        if len(self._hung) >= _MAX_HUNG:
            raise JudgeError(f"{_MAX_HUNG} calls of the model never returned", error_type="timeout")
        context = contextvars.copy_context()
        done = Future[Any]()

        def call() -> None:
            try:
                done.set_result(context.run(function))
            except BaseException as error:
                # Set as a result, not as an exception: asyncio logs one that is never retrieved.
                done.set_result(_failure_of(error))

        thread = threading.Thread(target=call, name="agenteval-judge")
        # else it has inherited the mark of our evaluations (`runtime.reentrancy`)
        if not thread.daemon:
            thread.daemon = True
        thread.start()
        try:
            result = await asyncio.shield(asyncio.wrap_future(done))
        except asyncio.CancelledError:
            self._hung.add(thread)
            raise
        if isinstance(result, JudgeError):
            raise result
        return result

    @cached_property
    def _hung(self) -> set[threading.Thread]:
        return set()

    @cached_property
    def _method(self) -> Callable[..., Any]:
        return _method_of(self.target) or self.target


def as_judge(value: object, *, path: str | None = None) -> Judge:
    """Return a judge from what a caller or a configuration may write.

    A `Judge` stays as it is. A mapping is resolved by its ``type``. ``type:model`` and
    ``type:model@address`` name a model. A type's name or a judge's class becomes a judge with
    default settings. An object or a function that generates text becomes a `CallableJudge`.

    Raises:
        ConfigurationError: The value is none of these, its type is unknown, or its settings are
            wrong.
    """

    def wrapped(target: object) -> CallableJudge | None:
        method = _method_of(target)
        if method is None:
            return None
        _expect_parameters(method, path)
        return CallableJudge.of(target)

    if isinstance(value, str):
        value = _named(value, path)
    expected = "a judge, an object or a function that generates text"
    return resolve_or_wrap(Judge, value, wrap=wrapped, path=path, expected=expected)


def _expect_parameters(method: Callable[..., Any], path: str | None) -> None:
    positional, named = _arguments(method, JudgeRequest(prompt=""))
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # of a C function
        return
    try:
        signature.bind(*positional, **named)
    except TypeError:
        wanted = "(prompt), (prompt, system), (messages), (request) or (**kwargs)"
        wrong = f"expected the parameters {wanted}, others with defaults, found {signature}"
        raise ConfigurationError(wrong[:300], path=path) from None


def _named(words: str, path: str | None) -> dict[str, str]:
    """Return the settings that a text names: ``type``, ``type:model`` or ``type:model@address``."""
    name, _, rest = words.strip().partition(":")
    # a model's name may hold colons, and an @ before a version
    model, at, address = rest.partition("@http")
    settings = {"type": name, "model": model, "base_url": f"http{address}" if at else ""}
    if name not in Judge.registry:
        wrong = f"unknown judge {name[:64]!r}{suggestion(name, Judge.registry)}"
    else:
        fields = Judge.registry[name].model_fields
        missing: list[str] = []
        for field, word in (("model", "model"), ("base_url", "address")):
            if not settings[field] and field in fields and fields[field].is_required():
                missing.append(word)
        if not missing:
            return {field: value for field, value in settings.items() if value}
        wrong = f"the judge {name!r} lacks its {' and its '.join(missing)}"
    known_types = ", ".join(sorted(Judge.registry))
    raise ConfigurationError(f"{wrong}: {_FORMS}. Known types: {known_types}", path=path)


def _method_of(target: object) -> Callable[..., Any] | None:
    if inspect.isroutine(target):
        return target
    methods = (*(getattr(target, name, None) for name in _METHODS), target)
    return next(filter(callable, methods), None)


def _failure_of(error: BaseException) -> JudgeError:
    """Return what the object raised as a `JudgeError`, with its cause.

    Live, the cause is shown only where content is.
    """
    if isinstance(error, JudgeError):
        return error
    kinds = {TimeoutError: "timeout", ConnectionError: "connection_error"}
    error_type = next(
        (name for kind, name in kinds.items() if isinstance(error, kind)), "server_error"
    )
    cause = PatternRedactor().redact(message_of(error))[:_MAX_CAUSE_CHARS]
    failure = JudgeError(f"the model raised {cause}", error_type=error_type)
    # An error with a status is a refusal by the provider; other failed calls may have been charged.
    failure.may_be_charged = not isinstance(getattr(error, "status_code", None), int)
    return failure


def _arguments(
    method: Callable[..., Any], request: JudgeRequest
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the request as keyword arguments that the method takes, else as one text."""
    whole = f"{request.system}\n\n{request.prompt}" if request.system else request.prompt
    try:
        parameters = inspect.signature(method).parameters
    except (TypeError, ValueError):
        return (whole,), {}
    if "request" in parameters:
        return (), {"request": request}
    if "messages" in parameters:
        texts = [("system", request.system), ("user", request.prompt)]
        messages = [{"role": role, "content": text} for role, text in texts if text]
        return (), {"messages": messages}
    named = {
        name: request.system
        for name in ("system", "system_prompt", "systemPrompt")
        if name in parameters
    }
    prompt = request.prompt if named else whole
    kinds = {parameter.kind for parameter in parameters.values()}
    takes_names_only = kinds == {inspect.Parameter.VAR_KEYWORD}
    if "prompt" in parameters or takes_names_only:
        return (), {"prompt": prompt, **named}
    return (prompt,), named


def _text_of(reply: object) -> str:
    for _ in range(3):
        if isinstance(reply, str):
            return reply
        if isinstance(reply, Mapping):
            values = [reply.get(name) for name in _TEXT_NAMES]
        else:
            values = [getattr(reply, name, None) for name in _TEXT_NAMES]
        reply = next((value for value in values if value is not None), None)
    raise JudgeError("the model returned no text", error_type=_MALFORMED)
