"""The captured call: what a monitored call takes and returns, detached from the host.

They are detached on the caller's thread. Of an exception only the class name is kept: the object
would hold the host's frames.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from typing import Any, Final
from uuid import UUID

from opentelemetry.context import Context
from opentelemetry.trace import SpanContext

from agenteval_otel.capture.detached import list_bytes, take
from agenteval_otel.models import StreamEnd
from agenteval_otel.runtime.text import words_of

STREAM_CHARS: Final = 256 * 1024
"""How much of a stream is kept for evaluation. What comes after is passed on and not kept."""
# A chunk that is not text counts as this many characters, or as its size / _BYTES_PER_CHAR if that
# is more.
_OBJECT_CHARS: Final = 256
_BYTES_PER_CHAR: Final = 64
_MOST_COPIED: Final = 1_000
_Place = tuple[str, int]
"""A parameter's name and position. The position of a keyword-only one is beyond all arguments."""
_IDS: Final = (str, int, UUID)
"""Types of ids that the caller's thread may read: converting them to text runs no code of the
host's.
"""


class CapturedCall:
    """One call of a monitored handler. The caller's thread fills it in as the call proceeds.

    What most calls never set are defaults of the class: a call costs what it sets, and no more.

    Attributes:
        agent: Whose call it is.
        call_id: The answer's own id, made when it is first asked for.
        is_referenced: The application may know the id.
        is_kept: What it takes and gives is kept. Not so for a call that is begun for its span
            alone.
        arguments: All of them, for a ``capture=`` function.
        conversation: Its id among the arguments.
        others: System text and history among the arguments, by their kind.
        original: The host's own answer, only for ``capture=``.
        original_chunks: The host's own chunks by place, only for ``capture=``.
        size_bytes: What was taken. Texts that are taken as they are count when the call is
            submitted.
        left_out: How many parts were not taken.
        span_context: Of its own span, or of the one that it ran in.
        token: Undoes that it is the current call.
        attached: Its span's context, while that is the current one, and what undoes it.
        ended_ns: When the answer was complete, Unix time. 0 while the call runs.
        facts: What was annotated.
        has_inner: A monitored call ran within it.
    """

    agent = ""
    call_id: str | None = None
    is_referenced = False
    is_kept = True
    prompt: object = None
    arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    conversation: str | None = None
    others: dict[str, Any] | None = None
    answer: object = None
    chunks: list[Any] | None = None
    original: object = None
    original_chunks: dict[int, object] | None = None
    size_bytes = 0
    truncated = False
    left_out = 0
    error_type: str | None = None
    stream_end: StreamEnd | None = None
    span_context: SpanContext | None = None
    token: Token[CapturedCall | None] | None = None
    attached: tuple[Context, Any] | None = None
    started_ns = 0
    started_tick = 0
    ended_ns = 0
    facts: dict[str, Any] | None = None
    has_inner = False

    def __init__(self, agent: str) -> None:
        self.agent = agent

    def conversation_id(self) -> str | None:
        """Return the conversation's id, on the caller's thread.

        It is an annotated text or plain id, else the argument.
        """
        for name in ("conversation_id", "session_id"):
            conversation = self.facts.get(name) if self.facts is not None else None
            if type(conversation) in _IDS:
                return str(conversation)
        return self.conversation

    def keep(self, value: object) -> Any:
        """Return the detached form of an argument. Its size is added to the call's."""
        taken = take(value)
        self.size_bytes += taken.size_bytes
        return taken.value

    def keep_answer(self, answer: object) -> None:
        """Take an answer that is no exact `str`."""
        self.answer = self._take_part(answer)
        if self.arguments is not None:
            self.original = _copied(answer)

    def keep_chunk(self, chunk: object, chunks: list[Any]) -> int:
        """Add a chunk that is no exact `str`. Return what it takes of `STREAM_CHARS`."""
        if self.arguments is not None:
            self.original_chunks = self.original_chunks or {}
            self.original_chunks[len(chunks)] = chunk
        before = self.size_bytes
        value = self._take_part(chunk)
        chunks.append(value)
        if type(value) is bytes or type(value) is str:
            self.size_bytes = before  # counted with the texts of the stream
            return len(value) or 1
        return max(_OBJECT_CHARS, (self.size_bytes - before) // _BYTES_PER_CHAR)

    def keep_stream(self, chunks: list[Any], end: StreamEnd, truncated: bool) -> None:
        """Take a stream's chunks, which were taken one by one as they passed."""
        self.chunks = chunks
        self.stream_end = end
        self.truncated = self.truncated or truncated
        self.size_bytes += list_bytes(chunks)

    def keep_facts(self) -> None:
        """Detach what was annotated, once, when the handler has ended."""
        facts = self.facts or {}
        # another task of the handler may annotate meanwhile
        for name, value in list(facts.items()):
            taken = take(value)
            self.size_bytes += taken.size_bytes
            # facts carry no mark, so cuts are counted
            self.left_out += taken.left_out + taken.truncated
            facts[name] = taken.value

    def originals(self) -> Any:
        """Return the answer or the chunks for ``capture=``: the host's own objects."""
        if self.chunks is None:
            return self.answer if self.original is None else self.original
        own = self.original_chunks or {}
        return [own.get(index, chunk) for index, chunk in enumerate(self.chunks)]

    def release(self) -> None:
        """Forget what the host's code made: a judge may take its time."""
        self.prompt = self.answer = self.original = None
        self.arguments = None
        self.chunks = None
        self.original_chunks = None
        self.facts = None
        self.others = None

    def _take_part(self, value: object) -> Any:
        taken = take(value)
        self.size_bytes += taken.size_bytes
        self.truncated = self.truncated or taken.truncated
        self.left_out += taken.left_out
        return taken.value


def _copied(answer: object) -> object:
    """Return a copy of a list or a dict of moderate size, and anything else as it is."""
    if (type(answer) is list or type(answer) is dict) and len(answer) <= _MOST_COPIED:
        return answer.copy()
    return answer


def new_call_id() -> str:
    """Return 16 random hexadecimal digits.

    They are of the system's randomness: the host's `random` is left alone.
    """
    return os.urandom(8).hex()


def call_id_of_span(span_id: int) -> str:
    """Return the id of the answer that a span shows: the same each time that the span comes."""
    return f"{span_id:016x}"


EVALUATING: Final = CapturedCall("evaluation")
EVALUATING.is_kept = False
"""Stands in `CURRENT` while evaluators run: handlers that see it do nothing, so evaluations are
never evaluated.
"""

CURRENT: Final[ContextVar[CapturedCall | None]] = ContextVar("agenteval_current_call", default=None)
"""The monitored call that the running code belongs to. It is None outside and inside calls that were not
sampled.
"""


PROMPT_NAMES: Final = (
    "prompt", "question", "query", "user_prompt", "user_input", "user_message", "message", "messages", "input",
    "inputs", "text", "content", "request",
)  # fmt: skip
# Annotations of a web framework's parameters: headers, cookies, sockets.
_WEB_TYPES: Final = frozenset(
    {
        "BackgroundTasks",
        "HTTPConnection",
        "HttpRequest",
        "Request",
        "Response",
        "WSGIRequest",
        "WebSocket",
    }
)
CONVERSATION_NAMES: Final = ("conversation_id", "session_id", "thread_id")
"""Names of a conversation's id, among arguments and in a prompt that is a request."""
_PROMPT_ENDINGS: Final = frozenset(
    {"input", "message", "messages", "msg", "prompt", "q", "query", "question", "text", "utterance"}
)
"""How the names of prompts end: ``user_question``, ``chatInput``."""
_NEVER_PROMPTS: Final = frozenset({
    # ids
    "account", "customer", "guid", "hash", "id", "ids", "key", "keys", "secret", "tenant", "token", "user", "username",
    "uuid",
    # settings
    "config", "debug", "k", "lang", "language", "limit", "locale", "model", "n", "offset", "options", "settings",
    "stream", "temperature", "timeout", "tokens", "tz", "verbose", "version",
    # resources
    "agent", "app", "cache", "callback", "callbacks", "client", "conn", "connection", "context", "ctx", "cursor",
    "database", "db", "dependencies", "deps", "engine", "graph", "llm", "log", "logger", "loop", "pool", "redis",
    "response", "runtime", "session", "span", "store", "tasks", "tools", "tracer", "websocket", "ws",
})  # fmt: skip
"""How the names of ids, settings and resources end: an argument of such a name is never the prompt."""
_NEVER_TYPES: Final = frozenset({"int", "float", "bool", "UUID", "date", "datetime", "Decimal"})
SYSTEM_NAMES: Final = ("system", "system_prompt", "system_message", "instructions")
_HISTORY_NAMES: Final = (
    "history",
    "message_history",
    "chat_history",
    "conversation_history",
    "messages",
)


class Arguments:
    """Finds prompt, conversation, system text and history among a handler's arguments.

    They are found on the caller's thread. `keep` holds all arguments, for a ``capture=`` function.
    Where `more` is False, `take` need not be called.
    """

    def __init__(self, function: Callable[..., Any], *, keep: bool = False) -> None:
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        self._keep = keep
        self._candidates: list[_Place] = []
        candidates = _prompt_candidates(parameters)
        if candidates is None:
            self.prompt_name, self._index = _unnamed_place(parameters)
        elif len(candidates) == 1:
            self.prompt_name, self._index = candidates[0]
        else:
            self.prompt_name = ""
            self._index = sys.maxsize
            self._candidates = candidates
        self.names = tuple(p.name for p in parameters if p.name not in ("self", "cls"))
        self._conversation = _places(parameters, CONVERSATION_NAMES)
        self._config = _places(parameters, ("config",))
        self._others: list[tuple[str, _Place]] = []  # "system" or "history", and where it is
        for kind, names in (("system", SYSTEM_NAMES), ("history", _HISTORY_NAMES)):
            for name, index in _places(parameters, names):
                if name != self.prompt_name:
                    self._others.append((kind, (name, index)))
        self.more = keep or bool(self._conversation or self._config or self._others)

    def prompt(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the prompt as it was passed, or None if it was not, or if several may be it."""
        if len(args) > self._index:
            return args[self._index]
        if not self._candidates:
            return kwargs.get(self.prompt_name)
        return self._only_text(args, kwargs)

    def _only_text(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """Return the only candidate that is text, or None if there are none or several."""
        texts = []
        for name, index in self._candidates:
            value = args[index] if len(args) > index else kwargs.get(name)
            if type(value) is str:
                texts.append(value)
        return texts[0] if len(texts) == 1 else None

    def conversation(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """Return the conversation's id as text, from a text, integer or UUID.

        It may also be ``config["configurable"]["thread_id"]``.
        """
        for name, index in self._conversation:
            id = args[index] if len(args) > index else kwargs.get(name)
            if type(id) in _IDS:
                return str(id)
        if self._config:
            name, index = self._config[0]  # there is at most one
            config = args[index] if len(args) > index else kwargs.get(name)
            configurable = config.get("configurable") if type(config) is dict else None
            id = configurable.get("thread_id") if type(configurable) is dict else None
            if type(id) in _IDS:
                return str(id)
        return None

    def take(self, call: CapturedCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Put the conversation's id, ``system`` and ``history`` on the call.

        It takes microseconds, whatever their size.
        """
        call.conversation = self.conversation(args, kwargs)
        if call.conversation is not None:
            call.size_bytes += sys.getsizeof(call.conversation)
        others: dict[str, Any] = {}
        for kind, (name, index) in self._others:
            value = args[index] if len(args) > index else kwargs.get(name)
            if value is not None and kind not in others:
                others[kind] = call.keep(value)
        call.others = others or None
        if self._keep:
            call.arguments = (args, kwargs)
            call.keep(call.arguments)  # for their size


def _prompt_candidates(parameters: list[inspect.Parameter]) -> list[_Place] | None:
    """Return the places of the parameters that may be the prompt: a single one if that is clear.

    A usual name is the prompt, else the first name that ends like one. Without either they are all
    that are no id, setting or resource by their name or annotation. Return None if the function
    names no parameters but takes whatever is passed.
    """
    named = {}
    for position, parameter in enumerate(parameters):
        takes_many = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if not takes_many and parameter.name not in ("self", "cls"):
            named[parameter.name] = position
    if not named:
        return None
    possible = [
        name for name, position in named.items() if not _is_never_prompt(parameters[position])
    ]
    usual = [name for name in PROMPT_NAMES if name in possible]
    alike = [name for name in possible if _last_word(name) in _PROMPT_ENDINGS]
    chosen = usual[:1] or alike[:1] or possible
    return [(name, _position(parameters[named[name]], named[name])) for name in chosen]


def _unnamed_place(parameters: list[inspect.Parameter]) -> _Place:
    """Return the place of the prompt of a function without named parameters: the first after self."""
    has_self = bool(parameters) and parameters[0].name in ("self", "cls")
    return ("", 1) if has_self else ("prompt", 0)


def _is_never_prompt(parameter: inspect.Parameter) -> bool:
    """Tell whether a parameter is an id, a setting, a resource or a part of a web framework."""
    annotation = _annotation_name(parameter)
    if annotation in _WEB_TYPES or annotation in _NEVER_TYPES:
        return True
    return parameter.name not in PROMPT_NAMES and _last_word(parameter.name) in _NEVER_PROMPTS


def _last_word(name: str) -> str:
    """Return the last word of a name in snake_case or camelCase, in lower case."""
    words = words_of(name)
    return words[-1] if words else name


def _position(parameter: inspect.Parameter, index: int) -> int:
    """Return the parameter's position among positional arguments, beyond all if it has none."""
    return sys.maxsize if parameter.kind is parameter.KEYWORD_ONLY else index


def _annotation_name(parameter: inspect.Parameter) -> str:
    annotation = parameter.annotation
    name: str = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return name.rpartition(".")[2]


def _places(parameters: list[inspect.Parameter], names: tuple[str, ...]) -> list[_Place]:
    """Return the places of the parameters with these names, in the order of the names.

    With ``**kwargs`` each of the names has a place.
    """
    positions = {}
    takes_any = False
    for index, parameter in enumerate(parameters):
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_any = True
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            positions[parameter.name] = _position(parameter, index)
    return [
        (name, positions.get(name, sys.maxsize)) for name in names if takes_any or name in positions
    ]
