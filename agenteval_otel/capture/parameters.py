"""What is taken of a handler's arguments: on the caller's thread, at places found at decoration."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from agenteval_otel.capture.calls import IDS, CapturedCall

__all__ = ["CONVERSATION_NAMES", "Arguments", "ConversationParameter", "OtherParameters", "PromptParameter"]

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
    """Takes what a call's evaluation wants of its arguments.

    Args:
        function: The undecorated handler.
        keep: Hold all of them, for a ``capture=`` function.

    Attributes:
        prompt: Gives the prompt of the arguments, by position and by name.
        more: There is more to take than the prompt; where it is False, `take` need not be called.
    """

    __slots__ = ("_conversation", "_keep", "_others", "more", "prompt")

    def __init__(self, function: Callable[..., Any], *, keep: bool) -> None:
        conversation, others = ConversationParameter(function), OtherParameters(function)
        self.prompt, self._keep = PromptParameter(function).of, keep
        self._conversation = conversation.of if conversation.present else None
        self._others = others.of if others.present else None
        self.more = keep or conversation.present or others.present

    def take(self, call: CapturedCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Put what there is beside the prompt on the call; microseconds, whatever its size."""
        if self._conversation is not None:
            call.conversation = self._conversation(args, kwargs)
            call.size_bytes += sys.getsizeof(call.conversation)
        if self._others is not None:
            others = self._others(args, kwargs)
            call.others = others and {name: call.keep(value) for name, value in others.items()}
        if self._keep:
            call.arguments = (args, kwargs)
            call.keep(call.arguments)  # for their size


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
        usable = [p for p in usable if not _is_of_the_web(p)]
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


def _is_of_the_web(parameter: inspect.Parameter) -> bool:
    """Whether it is annotated as what a web framework hands over beside the question: headers, cookies, sockets."""
    annotation = parameter.annotation
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return name.rpartition(".")[2] in _WEB_TYPES


class ConversationParameter:
    """Finds the conversation's id among a handler's arguments, by name; also ``config["configurable"]["thread_id"]``.

    Attributes:
        present: The handler can be given one; where it is False, `of` need not be asked.
    """

    __slots__ = ("_config", "_places", "present")

    def __init__(self, function: Callable[..., Any]) -> None:
        places = _places(function, (*CONVERSATION_NAMES, "config"))
        self._config = places.pop("config", None)
        self._places = tuple(places.items())
        self.present = self._config is not None or bool(self._places)

    def of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """The id as text, where it was passed as text, an integer or a UUID; no method of the host's is called."""
        for name, index in self._places:
            value = args[index] if len(args) > index else kwargs.get(name)
            if type(value) in IDS:
                return str(value)
        if self._config is None:
            return None
        config = args[self._config] if len(args) > self._config else kwargs.get("config")
        configurable = config.get("configurable") if type(config) is dict else None
        value = configurable.get("thread_id") if type(configurable) is dict else None
        return str(value) if type(value) in IDS else None


class OtherParameters:
    """Finds the system text and the history among a handler's arguments, by name: beside the prompt.

    Attributes:
        present: The handler can be given one of them.
    """

    __slots__ = ("_places", "present")

    def __init__(self, function: Callable[..., Any]) -> None:
        prompt = PromptParameter(function).name
        self._places = tuple(
            (kind, name, index)
            for kind, names in (("system", _SYSTEM_NAMES), ("history", _HISTORY_NAMES))
            for name, index in _places(function, names).items()
            if name != prompt
        )
        self.present = bool(self._places)

    def of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
        """What was passed, by ``system`` and ``history``; None when nothing was."""
        found: dict[str, Any] = {}
        for kind, name, index in self._places:
            value = args[index] if len(args) > index else kwargs.get(name)
            if value is not None and kind not in found:
                found[kind] = value
        return found or None


def _places(function: Callable[..., Any], names: tuple[str, ...]) -> dict[str, int]:
    """Where parameters of these names stand, in the order of the names; beyond every position those given by name."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return {}
    found = {
        p.name: sys.maxsize if p.kind is p.KEYWORD_ONLY else index
        for index, p in enumerate(parameters)
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return {name: found.get(name, sys.maxsize) for name in names if anything or name in found}
