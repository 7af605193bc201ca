"""The contract of span mappers: what a span of a dialect is, and what it says; a registry as of response formats.

A mapper reads one span. `mappers.trace` puts the spans of an answer together, so a trace may mix dialects: an agent
of one library whose model calls another library has instrumented.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeVar

from agenteval_otel.capture.messages import Call, Turn
from agenteval_otel.mappers.span import ReadSpan

Role = Literal["agent", "workflow", "model", "tool", "retrieval"]
"""What a span stands for. A workflow is a chain or graph around model calls and agents: where it shows an answer of its
own, it is evaluated as an agent is; otherwise what lies below it."""

Names = tuple[str, ...]


class Conversation(NamedTuple):
    """What a span shows of a conversation: the turns before the answer, system instructions first, and the answer's."""

    before: list[Turn]
    answer: list[Turn]


EMPTY: Final = Conversation([], [])


class SpanMapper:
    """How the spans of one dialect are read. A dialect is a subclass, registered with `span_mapper`, without state.

    All methods run on a background thread. What one raises fails that answer alone and is counted under `name`.

    Attributes:
        name: The dialect; a mapper registered under the same name replaces it.
        content_switch: How the dialect's content is switched on, as a hint beside "no content captured".
        facts: Attributes by the field of the input (or of `SpanFacts`) that they fill, the best one first.
        tokens: Attributes by the kind of tokens: ``input``, ``output``, ``cache_read``, ``cache_write``.
    """

    name: ClassVar[str] = ""
    content_switch: ClassVar[str] = ""
    facts: ClassVar[Mapping[str, Names]] = {}
    tokens: ClassVar[Mapping[str, Names]] = {}

    def reads(self, span: ReadSpan) -> bool:
        """Whether the span is of this dialect: by its scope, or by one attribute. Asked of every span, so cheap."""
        raise NotImplementedError

    def role(self, span: ReadSpan) -> Role | None:
        """What the span stands for; None for spans of the dialect that an answer is not read from."""
        raise NotImplementedError

    def conversation(self, span: ReadSpan) -> Conversation:
        """What an agent, workflow or model span shows of the conversation; `EMPTY` where no content was captured."""
        return EMPTY

    def tool_call(self, span: ReadSpan) -> Call | None:
        """The call that a tool span ran, with its result."""
        return None

    def documents(self, span: ReadSpan) -> list[Any]:
        """What a retrieval span found: texts, or mappings with the text and its source."""
        return []

    def tool_definitions(self, span: ReadSpan) -> Any:
        """The tools that a model or an agent may call, as the provider takes them; None where they are not shown."""
        return None

    def tags(self, span: ReadSpan) -> Mapping[str, Any]:
        """The application's own tags."""
        return {}


MAPPERS: Final[dict[str, SpanMapper]] = {}

M = TypeVar("M", bound=type[SpanMapper])


def span_mapper(mapper: M) -> M:
    """Register a mapper's class. The mapper registered last is asked first; the built-in conventions are asked last."""
    earlier = {name: known for name, known in MAPPERS.items() if name != mapper.name}
    MAPPERS.clear()
    MAPPERS.update({mapper.name: mapper()} | earlier)
    return mapper


def mapper_of(span: ReadSpan) -> SpanMapper | None:
    """The mapper that reads the span; None for a span of no known dialect."""
    return next((mapper for mapper in MAPPERS.values() if mapper.reads(span)), None)


def role_of(span: ReadSpan) -> Role | None:
    """What a span stands for; None for spans of no known dialect too, and where the mapper raises."""
    try:
        mapper = mapper_of(span)
        return None if mapper is None else mapper.role(span)
    except Exception:  # it raises again, and is counted, when the answer is read
        return None
