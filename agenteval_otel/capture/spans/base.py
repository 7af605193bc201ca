"""The contract of span mappers: a span's role and its content.

Mappers are registered as response formats are.

A mapper reads one span. `mappers.trace` puts the spans of an answer together, so a trace may mix
dialects: an agent of one library whose model calls another library has instrumented.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Final, Literal, TypeVar

from agenteval_otel.capture.annotations import FLAG_KEY, FLAG_VARIANTS
from agenteval_otel.capture.messages import Call, Turn
from agenteval_otel.capture.spans.span import ReadSpan
from agenteval_otel.semconv import (
    AGENT_NAME,
    CONVERSATION_ID,
    EXPERIMENT_ARM,
    EXPERIMENT_NAME,
    FORMER_NAMES,
    PROMPT_NAME,
    PROMPT_VERSION,
    TAG,
    USER_ID,
)

Role = Literal["agent", "workflow", "model", "tool", "retrieval", "plan"]
"""What a span stands for. A plan is what an agent thinks out before it answers: its tokens count,
what it says does not. A workflow is a chain or graph around model calls and agents: where it
shows an answer of its own, it is evaluated as an agent is. Otherwise what lies below it is."""

Names = tuple[str, ...]


_FORMER: Final = {present: former for former, present in FORMER_NAMES.items()}
COMMON: Final[Mapping[str, Names]] = {
    "agent": (AGENT_NAME,),
    "conversation_id": (CONVERSATION_ID,),
    "session_id": ("session.id",),
    "user_id": (USER_ID, "enduser.id"),
    "prompt_name": (PROMPT_NAME, _FORMER[PROMPT_NAME]),
    "prompt_version": (PROMPT_VERSION, _FORMER[PROMPT_VERSION]),
    "experiment": (EXPERIMENT_NAME, FLAG_KEY),
    "arm": (EXPERIMENT_ARM, *FLAG_VARIANTS),
}
"""Attributes that mean the same in every dialect, ours among them."""


class SpanMapper:
    """Reads the spans of one dialect.

    A dialect is a subclass, registered with `span_mapper`, without state.

    All methods run on a background thread. What one raises fails that answer alone and is counted
    under `name`.

    Attributes:
        name: The dialect. A mapper registered under the same name replaces it.
        content_switch: How the dialect's content is switched on, as a hint beside "no content
            captured".
        kind: The attribute that every span of the dialect has and that says what the span is. Left
            out if the dialect is known by other things: `reads` and `role` are then its own.
        roles: The role by the value of `kind`.
        facts: Attributes by the fact that they hold, the best one first: ``agent``, ``agent_id``,
            ``model``, ``response_id``, ``finish_reason``, ``conversation_id``, ``session_id``,
            ``user_id``, ``prompt_name``, ``prompt_version``, ``experiment``, ``arm``, ``cost`` in
            USD, ``streamed``.
        tokens: Attributes by the field of `Usage`. The input's tokens include those of the cache.
        reads_later: Its methods raise nothing, whatever a span holds. History, prompt and tool calls
            may then be read when something looks at them. What raises there after all is counted,
            and the field is None. Of other dialects they are read with the answer, which fails if
            that raises. A subclass says it for itself.
        workflows_ask_models: A workflow without a model call and an agent below it is a function of
            the application that is traced, and no answer.
    """

    name: ClassVar[str] = ""
    content_switch: ClassVar[str] = ""
    kind: ClassVar[str] = ""
    roles: ClassVar[Mapping[str, Role]] = {}
    facts: ClassVar[Mapping[str, Names]] = COMMON
    tokens: ClassVar[Mapping[str, Names]] = {}
    reads_later: ClassVar[bool] = False
    workflows_ask_models: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # Not inherited: a subclass may raise where the dialect that it adds to does not.
        cls.reads_later = vars(cls).get("reads_later", False)

    def reads(self, span: ReadSpan) -> bool:
        """Tell whether the span is of this dialect: by its scope, or by one attribute.

        Called often: keep it cheap.
        """
        if not self.kind:
            raise NotImplementedError
        return self.kind in span.attributes

    def role(self, span: ReadSpan) -> Role | None:
        """Return what the span stands for.

        None for spans of the dialect that an answer is not read from.
        """
        if not self.kind:
            raise NotImplementedError
        return self.roles.get(str(span.attributes[self.kind]))

    def before(self, span: ReadSpan) -> list[Turn]:
        """Return what an agent, workflow or model was asked, or what retrieval searches for.

        It is the conversation before the answer, system instructions first.
        """
        return []

    def answer(self, span: ReadSpan) -> list[Turn]:
        """Return what an agent, workflow or model answered.

        Calls and results of tools on the way are included as far as its own span shows
        them.
        """
        return []

    def conversation(self, span: ReadSpan) -> tuple[list[Turn], list[Turn]]:
        """Return `before` and `answer`, for a dialect that has them in one place."""
        return self.before(span), self.answer(span)

    def tool_call(self, span: ReadSpan) -> Call | None:
        """Return the call that a tool span ran, with its result."""
        return None

    def documents(self, span: ReadSpan) -> list[Any]:
        """Return what a retrieval span found: texts, or mappings with the text and its source."""
        return []

    def tool_definitions(self, span: ReadSpan) -> Any:
        """Return the tools that a model or an agent may call, as the provider takes them.

        Return None if they are not shown.
        """
        return None

    def tags(self, span: ReadSpan) -> Mapping[str, Any]:
        """Return the application's own tags.

        By default they are the attributes below ``agenteval.tag.``.
        """
        return {
            name[len(TAG) :]: value
            for name, value in span.attributes.items()
            if name.startswith(TAG)
        }

    def facts_of(self, span: ReadSpan) -> dict[str, Any]:
        """Return what `facts` and `tokens` name, as far as the span has it."""
        places = self._places
        values: dict[str, Any] = {}
        ranks: dict[str, int] = {}
        for attribute in places.keys() & span.attributes.keys():
            value = span.attributes[attribute]
            if value is None or value == "":
                continue
            for name, rank in places[attribute]:
                if ranks.get(name, rank) >= rank:
                    values[name] = value
                    ranks[name] = rank
        return values

    @cached_property
    def _places(self) -> dict[str, list[tuple[str, int]]]:
        """Return, by attribute, which facts it holds, and for each how many attributes are better."""
        places: dict[str, list[tuple[str, int]]] = {}
        for name, attributes in {**self.facts, **self.tokens}.items():
            for rank, attribute in enumerate(attributes):
                places.setdefault(attribute, []).append((name, rank))
        return places


def names_below(prefix: str, *names: str) -> Names:
    """Return the attributes of these names below a prefix, such as that of metadata."""
    return tuple(prefix + name for name in names)


MAPPERS: Final[dict[str, SpanMapper]] = {}

M = TypeVar("M", bound=type[SpanMapper])


def span_mapper(mapper: M) -> M:
    """Register a mapper's class.

    The mapper registered last is asked first. The built-in conventions are asked last.
    """
    earlier = {name: known for name, known in MAPPERS.items() if name != mapper.name}
    MAPPERS.clear()
    MAPPERS.update({mapper.name: mapper()} | earlier)
    return mapper


def mapper_of(span: ReadSpan, failed: Counter[str] | None = None) -> SpanMapper | None:
    """Return the mapper that reads the span.

    Return None for a span of no known dialect. Mappers that raise are counted, and the next one
    is tried. Unless one raised, the span keeps its mapper for later calls.
    """
    known: SpanMapper | None = span.mapper
    if known is not None:
        return known
    has_raised = False
    for mapper in MAPPERS.values():
        try:
            if mapper.reads(span):
                span.mapper = None if has_raised else mapper
                return mapper
        except Exception as error:
            has_raised = True
            if failed is not None:
                failed[f"{mapper.name}: {type(error).__name__}"] += 1
    return None


def role_of(span: ReadSpan) -> Role | None:
    """Return what a span stands for.

    Return None also for spans of no known dialect, and if the mapper raises.
    """
    mapper = mapper_of(span)
    try:
        return None if mapper is None else mapper.role(span)
    except Exception:  # it raises again, and is counted, when the trace is read
        return None
