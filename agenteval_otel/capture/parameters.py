"""A handler's arguments: prompt, conversation, system text and history, at positions found at decoration."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from agenteval_otel.capture.calls import IDS, CapturedCall

__all__ = ["CONVERSATION_NAMES", "Arguments"]

_PROMPT_NAMES: Final = (
    "prompt", "question", "query", "user_prompt", "user_input", "user_message", "message", "messages", "input",
    "inputs", "text", "content", "request",
)  # fmt: skip
_WEB_TYPES: Final = frozenset(
    {"BackgroundTasks", "HTTPConnection", "HttpRequest", "Request", "Response", "WSGIRequest", "WebSocket"}
)  # fmt: skip
CONVERSATION_NAMES: Final = ("conversation_id", "session_id", "thread_id")
"""What a conversation's id is called, among arguments and in a prompt that is a request."""
_SYSTEM_NAMES: Final = ("system", "system_prompt", "system_message", "instructions")
_HISTORY_NAMES: Final = ("history", "message_history", "chat_history", "conversation_history", "messages")


class Arguments:
    """Finds prompt, conversation, system text and history among a handler's arguments, on the caller's thread.

    The prompt is the parameter with an obvious name, else the first that is not self or cls.

    Args:
        function: The undecorated handler.
        keep: Hold all arguments, for a ``capture=`` function.

    Attributes:
        prompt_name: The parameter that is the prompt.
        more: There is more to take than the prompt; where it is False, `take` need not be called.
    """

    __slots__ = ("_config", "_conversation", "_index", "_keep", "_others", "more", "prompt_name")

    def __init__(self, function: Callable[..., Any], *, keep: bool = False) -> None:
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        self._keep = keep
        self._index, self.prompt_name = _prompt_place(parameters)
        places = _places(parameters, (*CONVERSATION_NAMES, "config"))
        self._config = places.pop("config", None)
        self._conversation = tuple(places.items())
        self._others = tuple(
            (kind, name, index)
            for kind, names in (("system", _SYSTEM_NAMES), ("history", _HISTORY_NAMES))
            for name, index in _places(parameters, names).items()
            if name != self.prompt_name
        )
        self.more = keep or bool(self._conversation or self._others) or self._config is not None

    def prompt(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The prompt as it was passed; None when it was not."""
        if len(args) > self._index:
            return args[self._index]
        return kwargs.get(self.prompt_name)

    def conversation(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """The conversation's id as text, from a text, integer or UUID; also ``config["configurable"]["thread_id"]``."""
        for name, index in self._conversation:
            value = args[index] if len(args) > index else kwargs.get(name)
            if type(value) in IDS:
                return str(value)
        if self._config is None:
            return None
        config = args[self._config] if len(args) > self._config else kwargs.get("config")
        configurable = config.get("configurable") if type(config) is dict else None
        value = configurable.get("thread_id") if type(configurable) is dict else None
        return str(value) if type(value) in IDS else None

    def others(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
        """What was passed as ``system`` and ``history``; None when nothing was."""
        passed: dict[str, Any] = {}
        for kind, name, index in self._others:
            value = args[index] if len(args) > index else kwargs.get(name)
            if value is not None and kind not in passed:
                passed[kind] = value
        return passed or None

    def take(self, call: CapturedCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Put what there is beside the prompt on the call; microseconds, whatever its size."""
        call.conversation = self.conversation(args, kwargs)
        if call.conversation is not None:
            call.size_bytes += sys.getsizeof(call.conversation)
        others = self.others(args, kwargs)
        call.others = others and {name: call.keep(value) for name, value in others.items()}
        if self._keep:
            call.arguments = (args, kwargs)
            call.keep(call.arguments)  # for their size


def _prompt_place(parameters: list[inspect.Parameter]) -> tuple[int, str]:
    """The prompt's position, beyond every position where it is keyword-only, and its name."""
    start = 1 if parameters and parameters[0].name in ("self", "cls") else 0
    usable = [p for p in parameters[start:] if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    usable = [p for p in usable if not _is_of_the_web(p)]
    by_name = {p.name: p for p in usable}
    chosen = next((by_name[name] for name in _PROMPT_NAMES if name in by_name), usable[0] if usable else None)
    if chosen is None:
        return start, "" if start else "prompt"
    return (sys.maxsize if chosen.kind is chosen.KEYWORD_ONLY else parameters.index(chosen)), chosen.name


def _is_of_the_web(parameter: inspect.Parameter) -> bool:
    """Whether it is annotated as a web framework's request or response: headers, cookies, sockets."""
    annotation = parameter.annotation
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return name.rpartition(".")[2] in _WEB_TYPES


def _places(parameters: list[inspect.Parameter], names: tuple[str, ...]) -> dict[str, int]:
    """Positions of the parameters with these names, in that order; parameters that are passed as keywords come last."""
    positions = {
        p.name: sys.maxsize if p.kind is p.KEYWORD_ONLY else index
        for index, p in enumerate(parameters)
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return {name: positions.get(name, sys.maxsize) for name in names if anything or name in positions}
