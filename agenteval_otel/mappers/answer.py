"""An answer from its spans: the evaluated span, and below it model calls, tools, retrieval and nested agents.

Every fact is asked of the evaluated span first, then of the model calls: what one dialect leaves out of an agent's
span, its model calls have. Where they disagree, the evaluated span is right.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agenteval_otel.capture.annotations import clean_annotation
from agenteval_otel.capture.build import SNAPSHOT, TRUNCATED, history_fields, last_question
from agenteval_otel.capture.fields import MAX_ITEMS, short
from agenteval_otel.capture.messages import Call, Turn
from agenteval_otel.capture.reading import plain_calls
from agenteval_otel.capture.text import CAP_CHARS, PlainCopy, clean, plain
from agenteval_otel.mappers.base import Role, SpanMapper
from agenteval_otel.mappers.span import ReadSpan
from agenteval_otel.mappers.values import has_text, structured
from agenteval_otel.models import EvaluationInput, Message, ToolCall, Usage
from agenteval_otel.models.value import construct
from agenteval_otel.semconv import ENVIRONMENT, ERROR_TYPE

_ENVIRONMENTS: Final = (ENVIRONMENT, "deployment.environment")
_IDS: Final = ("conversation_id", "session_id")
_OF_THE_RESPONSE: Final = ("model", "response_id", "finish_reason")
_ANNOTATIONS: Final = ("prompt_name", "prompt_version")


@dataclass(slots=True, eq=False)
class Node:
    """A span in its trace; `mapper` and `role` are None for spans of no known dialect."""

    span: ReadSpan
    mapper: SpanMapper | None = None
    role: Role | None = None
    children: list[Node] = field(default_factory=list)

    def fact(self, name: str) -> Any:
        return None if self.mapper is None else self.mapper.fact(self.span, name)

    def turns(self, *, before: bool = False) -> list[Turn]:
        """What the span shows of the answer, or of what came before it."""
        if self.mapper is None:
            return []
        return self.mapper.before(self.span) if before else self.mapper.answer(self.span)

    def tokens(self) -> Iterator[tuple[str, int]]:
        """The counts that the span has, by the field of `Usage`."""
        attributes = self.span.attributes
        for name, keys in self.mapper.tokens.items() if self.mapper else ():
            value = next((value for key in keys if (value := attributes.get(key)) is not None), None)
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1 << 53:
                yield name, int(value)


class Answer:
    """The spans of an answer by what they are for.

    Attributes:
        models: Model calls below no other model call, each response once, by their start; those of nested agents too.
        own_models, tools: Of the evaluated agent itself; those of all agents, where it calls no model itself.
        aliases: Agent spans below the evaluated one that stand for the same agent.
        agents: Nested agents with a name of their own.
        started_ns: Start of the evaluated span, or of the first of the `steps`: earlier model calls of one loop.
    """

    def __init__(self, root: Node, steps: Sequence[Node] = ()) -> None:
        self.root = root
        self.name = short(root.fact("agent"))
        self.started_ns = min(node.span.start_ns for node in (*steps, root))
        self.aliases: list[Node] = []
        self.agents: list[Node] = []
        self.retrievals: list[Node] = []
        self.spans = 0
        by_kind: list[tuple[Node, bool]] = []
        for start in (*steps, root):
            by_kind += self._walk(start)
        by_kind.sort(key=lambda item: item[0].span.start_ns)
        models = [item for item in by_kind if item[0].role == "model"]
        has_own = any(not nested for _, nested in models) and root.role != "workflow"
        self.models = list(_each_response_once(node for node, _ in models))
        known = set(map(id, self.models))
        self.own_models = [node for node, nested in models if not (nested and has_own) and id(node) in known]
        self.tools = [node for node, nested in by_kind if node.role == "tool" and not (nested and has_own)]

    def _walk(self, root: Node) -> Iterator[tuple[Node, bool]]:
        """Model calls and tools, each below no other of its kind, and whether they belong to a nested agent."""
        stack: list[tuple[Node, bool, frozenset[str]]] = [(root, False, frozenset())]
        while stack:
            node, nested, above = stack.pop()
            self.spans += 1
            role = node.role
            if role == "agent" and node is not self.root:
                name = short(node.fact("agent"))
                if name is None or name == self.name:
                    self.aliases.append(node)
                else:
                    self.agents.append(node)
                    nested = True
            elif role == "retrieval":
                self.retrievals.append(node)
            elif (role == "model" or role == "tool") and role not in above:
                yield node, nested or "tool" in above  # a model that a tool asks is the tool's
                above = above | {role}
            stack.extend((child, nested, above) for child in node.children)

    def fact(self, name: str) -> Any:
        """A fact of the evaluated span, of one that stands for it, or of its model calls."""
        nodes = (self.root, *self.aliases, *self.own_models)
        return next((value for node in nodes if (value := node.fact(name)) is not None), None)

    def fact_of_last(self, name: str) -> Any:
        """A fact of the model's last response, or of the evaluated span."""
        nodes = (*reversed(self.own_models), self.root)
        return next((value for node in nodes if (value := node.fact(name)) is not None), None)


def _each_response_once(models: Iterable[Node]) -> Iterator[Node]:
    """A client and its instrumentation may both have a span for one response."""
    ids: set[str] = set()
    for node in models:
        id = node.fact("response_id")
        if isinstance(id, str):
            if id in ids:
                continue
            ids.add(id)
        yield node


def input_of(answer: Answer) -> tuple[EvaluationInput, str | None, bool]:
    """The evaluation input, the user's id as it stands, and whether any content was captured."""
    root = answer.root
    turns = _turns(answer)
    before = _before(answer)
    calls = _calls(answer, turns, before)
    text = next((turn.text for turn in reversed(turns) if turn.text or turn.calls), None)
    question = last_question(before) if before else None
    has_content = bool(text or question) or any(call.arguments is not None for call in calls)
    error_type = error_type_of(root.span)
    history = history_fields(before) if before and has_content else ()
    fields: dict[str, Any] = {
        "prompt": question if has_content else None,
        "message_history": [_message(message) for message in history] or None,
        "response": clean(text or "") if has_content else None,
        "tool_calls": [construct(ToolCall, call) for call in plain_calls(calls, PlainCopy()) or ()] or None,
        "usage": _usage(answer),
        "cost": _cost(answer),
        "turns": len(answer.own_models) or None,
        "timestamp": root.span.end_ns // 1_000_000,
        "duration_s": max(0, root.span.end_ns - answer.started_ns) / 1e9,
        "error_type": error_type,
        "stream_end": ("error" if error_type else "completed") if answer.fact("streamed") is True else None,
        "agent": answer.name or _name_of(answer),
        "context": _context(answer),
        "agent_config": _agent_config(answer),
        **{name: short(answer.fact(name)) for name in _IDS},
        **{name: _word(answer.fact_of_last(name)) for name in _OF_THE_RESPONSE},
        **_annotations(answer),
    }
    fields["agent_id"] = short(answer.fact("agent_id")) or fields["agent"]
    if text and len(text) > CAP_CHARS:
        fields["metadata"] = {SNAPSHOT: TRUNCATED}
    user_id = answer.fact("user_id")
    return construct(EvaluationInput, fields), None if user_id is None else clean(str(user_id), 512), has_content


def _message(fields: dict[str, Any]) -> Message:
    """A message from clean fields."""
    if "tool_calls" in fields:
        fields["tool_calls"] = [construct(ToolCall, call) for call in fields["tool_calls"]]
    return construct(Message, fields)


def _turns(answer: Answer) -> list[Turn]:
    """What was answered: by the evaluated span, else by its model calls, the last of which is the answer's text."""
    turns = answer.root.turns()
    for node in answer.aliases if not has_text(turns) else ():
        turns = node.turns()
        if has_text(turns):
            break
    own = [turn for node in answer.own_models if node is not answer.root for turn in node.turns()]
    if any(turn.text for turn in turns):
        # Their calls count, their text comes before the answer.
        return [Turn(turn.role, None, turn.calls, turn.results) for turn in own if turn.calls or turn.results] + turns
    return [*turns, *own]


def _before(answer: Answer) -> list[Turn]:
    """The conversation before the answer. An agent's span often has the question only, and the first model call has the
    instructions and the earlier messages besides; that it was asked the same is checked."""
    turns: list[Turn] = []
    for node in (answer.root, *answer.aliases):
        turns = node.turns(before=True)
        if has_text(turns):
            break
    first = answer.own_models[0] if answer.own_models else None
    if first is None or first is answer.root or any(turn.role == "system" for turn in turns):
        return turns
    earlier = first.turns(before=True)
    question = last_question(turns) if turns else None
    return earlier if question is None or question in (turn.text for turn in earlier if turn.role == "user") else turns


def _calls(answer: Answer, turns: list[Turn], before: list[Turn]) -> list[Call]:
    """The agent's tool calls: as models made them, completed by the spans of the tools and by their messages."""
    calls: list[Call] = []
    by_id: dict[str, Call] = {}
    results: dict[str, Any] = {}
    # A lone model call may be the last step of a loop; the steps before it follow the user's last message.
    last_user = max((index for index, turn in enumerate(before) if turn.role == "user"), default=len(before))
    steps = before[last_user + 1 :] if answer.root.role == "model" else []
    for turn in (*steps, *turns):
        results.update({id: result for id, result in turn.results if id})
        for call in turn.calls:
            known = by_id.get(call.id) if call.id else None
            if known is None and len(calls) < MAX_ITEMS:
                calls.append(call)
                if call.id:
                    by_id[call.id] = call
            elif known is not None and known.arguments is None:
                known.arguments = call.arguments
    _add_runs(calls, by_id, answer.tools)
    open_calls = [call for call in calls if call.result is None and call.error is None]
    if any(call.id not in results for call in open_calls) and len(answer.own_models) > 1:
        last = answer.own_models[-1].turns(before=True)
        results.update({id: result for turn in last for id, result in turn.results if id})
    for call in open_calls:
        call.result = results.get(call.id or "")
    return calls


def _add_runs(calls: list[Call], by_id: dict[str, Call], tools: list[Node]) -> None:
    """Complete calls by the tools' spans: by their id, else the first call of that name that no span stands for."""
    by_name: dict[str, deque[Call]] = {}
    for call in calls:
        by_name.setdefault(call.name, deque()).append(call)
    for node in tools:
        run = None if node.mapper is None else node.mapper.tool_call(node.span)
        if run is None:
            continue
        run.duration_s = node.span.duration_s
        run.error = run.error or _error_of(node.span)
        same_name = by_name.get(run.name)
        known = by_id.get(run.id) if run.id else same_name.popleft() if same_name else None
        if known is not None:
            known.result = known.result if run.result is None else run.result
            known.arguments = run.arguments if known.arguments is None else known.arguments
            known.error, known.duration_s = run.error, run.duration_s
        elif len(calls) < MAX_ITEMS:
            calls.append(run)


def _error_of(span: ReadSpan) -> str | None:
    if not span.is_error and ERROR_TYPE not in span.attributes:
        return None
    return span.status_message or error_type_of(span)


def error_type_of(span: ReadSpan) -> str | None:
    """The class name of the exception, or the error's code; ``error`` where a failed span does not say."""
    value = span.attributes.get(ERROR_TYPE)
    if value is None:
        if not span.is_error:
            return None
        raised = (event.attributes.get("exception.type") for event in span.events if event.name == "exception")
        value = next((name for name in raised if name), "error")
    return (short(str(value)) or "error").rpartition(".")[2] or "error"


def _usage(answer: Answer) -> Usage | None:
    """Tokens of all model calls, of nested agents too; where none reports any, those of the evaluated span."""
    for nodes in (answer.models, (answer.root,)):
        totals: dict[str, int] = {}
        for node in nodes:
            for name, value in node.tokens():
                totals[name] = totals.get(name, 0) + value
        if any(totals.values()):
            return construct(Usage, totals)
    return None


def _cost(answer: Answer) -> float | None:
    for nodes in (answer.models, (answer.root,)):
        costs = [node.fact("cost") for node in nodes]
        known = [float(cost) for cost in costs if type(cost) in (int, float) and 0 <= cost < float("inf")]
        if known:
            return sum(known)
    return None


def _context(answer: Answer) -> dict[str, Any] | None:
    nodes = sorted(answer.retrievals, key=lambda node: node.span.start_ns)
    documents = [item for node in nodes if node.mapper for item in node.mapper.documents(node.span)]
    return {"documents": plain(documents[:MAX_ITEMS])} if documents else None


def _agent_config(answer: Answer) -> dict[str, Any] | None:
    for node in (answer.root, *answer.own_models):
        tools = node.mapper.tool_definitions(node.span) if node.mapper else None
        if tools:
            return {"tools": tools}
    return None


def _annotations(answer: Answer) -> dict[str, Any]:
    resource = answer.root.span.resource
    values = {name: answer.fact(name) for name in _ANNOTATIONS}
    values["environment"] = next((value for name in _ENVIRONMENTS if (value := resource.get(name))), None)
    for node in (answer.root, *answer.own_models[:1]):
        tags = node.mapper.tags(node.span) if node.mapper else None
        if tags:
            values["tags"] = dict(tags)
            break
    cleaned = {
        name: clean_annotation(name, value, str, _ignored) for name, value in values.items() if value not in (None, "")
    }
    return {name: value for name, value in cleaned.items() if value}


def _ignored(why: str) -> None:
    """A tag or version of another library that does not fit is left out."""


def _name_of(answer: Answer) -> str | None:
    """An agent's or workflow's name, where its span does not say it: of the first agent below it, else the span's."""
    if answer.root.role == "model":
        return None
    agents = sorted(answer.agents, key=lambda node: node.span.start_ns) if answer.root.role == "agent" else []
    return short(agents[0].fact("agent") if agents else answer.root.span.name)


def _word(value: Any) -> str | None:
    """The text, or the first of a list of texts: finish reasons come as a list, or as its JSON."""
    value = structured(value)
    if isinstance(value, list | tuple):
        value = value[0] if value else None
    return short(value) or None
