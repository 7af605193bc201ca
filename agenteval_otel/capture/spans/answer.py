"""An answer from its spans: the evaluated span, and what is below it.

Below it are model calls, tools, retrieval and nested agents.

Every fact is read from the evaluated span, else from the model calls: these contain what a dialect
leaves out of an agent's span. Where they disagree, the evaluated span takes precedence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from agenteval_otel.capture.annotations import clean_annotation, flag_of
from agenteval_otel.capture.build import (
    SNAPSHOT,
    TRUNCATED,
    history_fields,
    last_question,
    message_of,
)
from agenteval_otel.capture.fields import MAX_ITEMS, short
from agenteval_otel.capture.messages import Call, Result, Turn
from agenteval_otel.capture.reading import plain_calls
from agenteval_otel.capture.spans.base import Role, SpanMapper
from agenteval_otel.capture.spans.span import ReadSpan
from agenteval_otel.capture.spans.values import first_choice, has_text, structured
from agenteval_otel.capture.text import CAP_CHARS, PlainCopy, clean, plain
from agenteval_otel.models import EvaluationInput, Message, ToolCall, Usage
from agenteval_otel.models.value import Later, construct
from agenteval_otel.semconv import AS_JSON, ENVIRONMENT, ERROR_TYPE

_CONVERSATION_ENDS: Final = "agenteval.conversation.ends"  # the application's word
_ENVIRONMENTS: Final = (ENVIRONMENT, "deployment.environment")
_ENDS: Final = frozenset({"stop", "end_turn", "length", "max_tokens", "stop_sequence"})
_TOKENS: Final = tuple(Usage.model_fields)
_MOST_CHARS: Final = 16 * 1024
"""The longest text of an answer that is kept with its spans."""
_ANNOTATIONS: Final = ("prompt_name", "prompt_version", "experiment", "arm")


@dataclass(slots=True, eq=False)
class Node:
    """Holds a span in its trace. `mapper` and `role` are None for spans of no known dialect.

    Attributes:
        documents: How many documents it found. Set with the answer's context.
    """

    span: ReadSpan
    mapper: SpanMapper | None = None
    role: Role | None = None
    children: list[Node] = field(default_factory=list)
    documents: int | None = None
    _facts: dict[str, Any] | None = None

    @property
    def reads_later(self) -> bool:
        """Tell whether the span may be read when something looks at what it shows."""
        return self.mapper is None or self.mapper.reads_later

    @property
    def facts(self) -> dict[str, Any]:
        """Return what the span's attributes say, read once."""
        if self._facts is None:
            self._facts = {} if self.mapper is None else self.mapper.facts_of(self.span)
        return self._facts

    def conversation(self) -> tuple[list[Turn], list[Turn]]:
        """Return what the span shows of the conversation before the answer, and of the answer."""
        if self.mapper is None:
            return [], []
        before, turns = self.mapper.conversation(self.span)
        return before, first_choice(turns) if self.role == "model" else turns

    @property
    def has_answer_apart(self) -> bool:
        """Tell whether the answer is read without the conversation before it."""
        mapper = self.mapper
        return mapper is not None and type(mapper).conversation is SpanMapper.conversation

    def before(self) -> list[Turn]:
        return [] if self.mapper is None else self.mapper.before(self.span)

    def answer(self) -> list[Turn]:
        turns = [] if self.mapper is None else self.mapper.answer(self.span)
        return first_choice(turns) if self.role == "model" else turns


class SpanAnswer:
    """Holds the spans of an answer by what they are for, and reads what they show.

    The conversation before the answer, the tool calls and both as values are read with the first
    call of their method. Two threads that call it at once may both read. Then both get what was
    read first: the tool calls are completed in the conversation.

    Attributes:
        models: Model calls below no other model call, each response once, by their start. Those of
            nested agents are among them.
        own_models, tools: Of the evaluated agent itself, or those of all agents, where it calls no
            model itself. `other_models` are those without the evaluated span.
        starts: The spans that the answer was read from, with all below them: the steps of one loop,
            and the evaluated span.
        aliases: Agent spans below the evaluated one that stand for the same agent.
        agents: Nested agents with a name of their own.
        started_ns: Start of the evaluated span, or of the first of the `steps`: earlier model calls
            of one loop.
        shown: What the evaluated span, or one that stands for it, shows of the answer, by
            `read_shown`.
        shown_before: What it shows of the conversation before. None while it is unread.
        reads_later: The text and the question are in what is shown, and reading the rest raises
            nothing. The rest may be read when something looks at it. Not of a long text, which the
            spans would keep a second time.
        tool_runs: The spans of tools with their calls, by `calls`.
    """

    def __init__(self, root: Node, steps: Sequence[Node] = ()) -> None:
        self.root = root
        self.starts = (*steps, root)
        self.name = short(root.facts.get("agent"))
        self.started_ns = min(node.span.start_ns for node in self.starts)
        self.aliases: list[Node] = []
        self.agents: list[Node] = []
        self.retrievals: list[Node] = []
        self.spans = 0
        self.shown: list[Turn] = []
        self.shown_before: list[Turn] | None = None
        self.reads_later = False
        self.tool_runs: list[tuple[Node, Call]] = []
        self._read: dict[str, list[Any]] = {}
        by_kind: list[tuple[Node, bool]] = []
        for start in self.starts:
            by_kind += self._walk(start)
        by_kind.sort(key=lambda item: item[0].span.start_ns)
        models = [item for item in by_kind if item[0].role == "model"]
        has_own = any(not nested for _, nested in models) and root.role != "workflow"
        self.models = list(_each_response_once(node for node, _ in models))
        known = set(map(id, self.models))
        own = [node for node, nested in by_kind if not (nested and has_own)]
        self.own_models = [node for node in own if id(node) in known]
        self.other_models = [node for node in self.own_models if node is not root]
        self.tools = [node for node in own if node.role == "tool"]

    def _walk(self, root: Node) -> Iterator[tuple[Node, bool]]:
        """Yield model calls and tools, each below no other of its kind.

        Each comes with whether it belongs to a nested agent.
        """
        stack = [(root, False, False, False)]
        while stack:
            node, nested, in_model, in_tool = stack.pop()
            self.spans += 1
            role = node.role
            if role == "agent" and node is not self.root:
                name = short(node.facts.get("agent"))
                if name is None or name == self.name:
                    self.aliases.append(node)
                else:
                    self.agents.append(node)
                    nested = True
            elif role == "retrieval":
                self.retrievals.append(node)
            elif role == "plan":
                nested = True  # the user saw nothing of it
            elif role == "model" and not in_model:
                yield node, nested or in_tool  # a model call in a tool is the tool's
                in_model = True
            elif role == "tool" and not in_tool:
                yield node, nested
                in_tool = True
            stack += [(child, nested, in_model, in_tool) for child in node.children]

    def read_shown(self) -> None:
        """Read what the agent's own spans show, and decide whether the rest is read later."""
        root = self.root
        nodes = (root, *self.aliases, *self.own_models, *self.tools)
        may_wait = all(node.reads_later for node in nodes)
        is_alone = not (self.other_models or self.aliases)
        if root.role == "model" and is_alone and may_wait and root.has_answer_apart:
            self.shown = root.answer()
            # Not looked for: it may be in a long conversation, and a text is enough to judge.
            has_question = True
        else:
            self.shown_before, self.shown = _shown(self)
            has_question = root.role != "model" and bool(last_question(self.shown_before))
        closing = closing_turn(self.shown)
        text = "" if closing is None else closing.text or ""
        is_short = 0 < len(text) <= _MOST_CHARS
        self.reads_later = may_wait and has_question and is_short

    def read_rest(self) -> None:
        """Read the rest of an answer that cannot be read later."""
        if not self.reads_later:
            self.calls()
            self.history()
            self.tool_calls()

    def before(self) -> list[Turn]:
        """Return the conversation before the answer."""
        return self._once("before", _before_answer)

    def turns(self) -> list[Turn]:
        """Return what was answered, with the steps on the way."""
        return self._once("turns", _answer_turns)

    def calls(self) -> list[Call]:
        """Return the agent's tool calls."""
        return self._once("calls", _calls)

    def history(self) -> list[Message]:
        """Return the conversation before the answer as values."""
        return self._once("history", _history_values)

    def tool_calls(self) -> list[ToolCall]:
        """Return the tool calls as values."""
        return self._once("tool_calls", _tool_call_values)

    def _once(self, name: str, read: Callable[[SpanAnswer], list[Any]]) -> list[Any]:
        """Return what was read first. There is no lock: a forked child would inherit it closed."""
        known = self._read.get(name)
        return self._read.setdefault(name, read(self)) if known is None else known

    def may_have_calls(self) -> bool:
        """Tell whether there may be tool calls, without reading the model calls for them."""
        if self.tools or self.root.role == "model" or any(turn.calls for turn in self.shown):
            return True
        return not all(map(_only_says, self.other_models))

    def facts(self) -> dict[str, Any]:
        """Return facts of the evaluated span, of those that stand for it, and of its model calls.

        They take precedence in that order, the first model call before the others.
        """
        facts: dict[str, Any] = {}
        for node in (*reversed(self.own_models), *reversed(self.aliases), self.root):
            facts |= node.facts
        return facts

    def facts_of_last(self) -> dict[str, Any]:
        """Return facts of the evaluated span and of its model calls.

        Those of the last model call take precedence, for what belongs to the response.
        """
        facts: dict[str, Any] = {}
        for node in (self.root, *self.own_models):
            facts |= node.facts
        return facts


def _each_response_once(models: Iterable[Node]) -> Iterator[Node]:
    """Yield the spans, of those of one response only the first.

    A client and its instrumentation may both have a span for one response.
    """
    ids: set[str] = set()
    for node in models:
        id = node.facts.get("response_id")
        if isinstance(id, str):
            if id in ids:
                continue
            ids.add(id)
        yield node


Failed = Callable[[str], object]
"""Gets the mapper of an answer and the class of what it has raised: ``openinference: KeyError``."""


def failure_of(node: Node, error: Exception) -> str:
    """Return the mapper's name and the exception's, without content."""
    name = node.mapper.name if node.mapper else node.span.scope
    return f"{name}: {type(error).__name__}"


class ReadInput(NamedTuple):
    """An evaluation input, and what is known beside it.

    Attributes:
        user_id: As the application wrote it.
        has_content: Some content was captured.
        is_unread: The answer has parts, of which none is text.
    """

    input: EvaluationInput
    user_id: str | None
    has_content: bool
    is_unread: bool


class _Content(NamedTuple):
    """Holds what an answer says, and the fields of its prompt, history and tool calls."""

    closing: Turn | None
    has_content: bool
    is_unread: bool
    fields: dict[str, Any]


def closing_turn(turns: list[Turn]) -> Turn | None:
    """Return the last turn that says something or calls a tool."""
    return next((turn for turn in reversed(turns) if turn.text or turn.calls), None)


def _content_read(answer: SpanAnswer) -> _Content:
    before = answer.before()
    turns = answer.turns()
    calls = answer.calls()
    closing = closing_turn(turns)
    text = None if closing is None else closing.text
    is_unread = not text and not calls and any(turn.has_unread_parts for turn in turns)
    question = last_question(before)
    has_content = bool(text or question) or any(call.arguments is not None for call in calls)
    fields: dict[str, Any] = {}
    if has_content and before:
        fields["prompt"] = question
        fields["message_history"] = answer.history()
    if calls:
        fields["tool_calls"] = answer.tool_calls() or None
    return _Content(closing, has_content, is_unread, fields)


def _content_shown(answer: SpanAnswer, failed: Failed) -> _Content:
    """Return what `_content_read` does. What is not shown is read once something looks at it."""

    def later(read: Callable[[SpanAnswer], Any]) -> Later:
        return Later(partial(_read_or_none, read, answer, failed))

    fields = {"prompt": later(_prompt), "message_history": later(_history)}
    if answer.may_have_calls():
        fields["tool_calls"] = later(_tool_calls)
    return _Content(closing_turn(answer.shown), True, False, fields)


def _read_or_none(read: Callable[[SpanAnswer], Any], answer: SpanAnswer, failed: Failed) -> Any:
    """Return what is read. Report an error and return None: looking at a field raises nothing."""
    try:
        return read(answer)
    except Exception as error:
        failed(failure_of(answer.root, error))
        return None


def _prompt(answer: SpanAnswer) -> str | None:
    return last_question(answer.before())


def _history(answer: SpanAnswer) -> list[Message] | None:
    return answer.history() or None


def _tool_calls(answer: SpanAnswer) -> list[ToolCall] | None:
    return answer.tool_calls() or None


def input_of(answer: SpanAnswer, failed: Failed) -> ReadInput:
    """Return the evaluation input of an answer of which `read_shown` and `read_rest` were called.

    `failed` gets what raises when the rest is read later.
    """
    root = answer.root
    facts = answer.facts()
    last = answer.facts_of_last()
    content = _content_shown(answer, failed) if answer.reads_later else _content_read(answer)
    closing = content.closing
    text = None if closing is None else closing.text
    error_type = error_type_of(root.span)
    agent = answer.name or _name_of(answer)
    duration_ns = max(0, root.span.end_ns - answer.started_ns)
    fields: dict[str, Any] = {}
    fields["response"] = clean(text or "") if content.has_content else None
    fields["timestamp"] = root.span.end_ns // 1_000_000
    fields["duration_s"] = duration_ns / 1e9
    fields["turns"] = len(answer.own_models) or None
    fields["error_type"] = error_type
    fields["agent"] = agent
    fields["agent_id"] = short(facts.get("agent_id")) or agent
    fields["conversation_id"] = short(facts.get("conversation_id"))
    fields["session_id"] = short(facts.get("session_id"))
    fields["model"] = short(last.get("model"))
    fields["response_id"] = short(last.get("response_id"))
    fields["finish_reason"] = word_of(last.get("finish_reason"))
    fields["context"] = _context(answer)
    fields["agent_config"] = _agent_config(answer)
    fields["usage"] = _usage(answer)
    fields["cost"] = _cost(answer)
    fields |= content.fields
    if closing is not None and closing.is_json:
        fields["response_form"] = AS_JSON
    if facts.get("streamed") is True:
        fields["stream_end"] = "error" if error_type else "completed"
    if text and len(text) > CAP_CHARS:
        fields["metadata"] = {SNAPSHOT: TRUNCATED}
    fields |= _annotations(answer, facts)
    user_id = facts.get("user_id")
    return ReadInput(
        construct(EvaluationInput, fields),
        None if user_id is None else clean(str(user_id), 512),
        content.has_content,
        content.is_unread,
    )


def _shown(answer: SpanAnswer) -> tuple[list[Turn], list[Turn]]:
    """Return the conversation before the answer and the answer, as the agent's own spans show them."""
    before, turns = answer.root.conversation()
    for node in answer.aliases:
        if before and has_text(turns):
            break
        more_before, more_turns = node.conversation()
        before = before or more_before
        if not has_text(turns):
            turns = more_turns
    return before, turns


def _history_values(answer: SpanAnswer) -> list[Message]:
    if answer.root.role == "model":
        answer.calls()  # the spans of tools complete those in the conversation too
    return list(map(message_of, history_fields(answer.before())))


def _tool_call_values(answer: SpanAnswer) -> list[ToolCall]:
    if answer.root.role == "model":
        answer.history()  # it may have further results of theirs
    calls = plain_calls(answer.calls(), PlainCopy()) or ()
    return [construct(ToolCall, call) for call in calls]


def _before_answer(answer: SpanAnswer) -> list[Turn]:
    """Return the conversation before the answer.

    An agent's span often has only the question. The first model call also has the instructions and
    earlier messages, which are used if they contain the question.
    """
    before = answer.root.before() if answer.shown_before is None else answer.shown_before
    models = answer.other_models
    if models and not any(turn.role == "system" for turn in before):
        question = last_question(before)
        earlier = models[0].before()
        if not question or question in (turn.text for turn in earlier if turn.role == "user"):
            before = earlier or before
    return before


def _answer_turns(answer: SpanAnswer) -> list[Turn]:
    """Return what was answered.

    The answer's text is the agent's, else the last model call's. The tool calls of all models
    count.
    """
    models = answer.other_models
    # Where an agent shows its answer, texts of its models are steps before it.
    if any(turn.text for turn in answer.shown):
        return [*_steps_of_models(models), *answer.shown]
    turns = list(answer.shown)
    for node in models:
        turns += node.answer()
    return turns


def _steps_of_models(models: list[Node]) -> list[Turn]:
    """Return the turns of the models that have calls or results of tools, without their text."""
    steps: list[Turn] = []
    for node in models:
        if _only_says(node):
            continue
        for turn in node.answer():
            if turn.calls or turn.results:
                steps.append(Turn(turn.role, None, turn.calls, turn.results))
    return steps


def _only_says(model: Node) -> bool:
    """Tell whether a model's response has no tool calls, by its finish reason.

    It need not be read for them.
    """
    reason = word_of(model.facts.get("finish_reason"))
    return reason in _ENDS


def _calls(answer: SpanAnswer) -> list[Call]:
    """Return the agent's tool calls, as models made them.

    The spans of the tools and the tools' messages complete them.
    """
    calls: list[Call] = []
    by_id: dict[str, Call] = {}
    results: dict[str, Result] = {}
    for turn in (*_steps_in_conversation(answer), *answer.turns()):
        results.update({result.id: result for result in turn.results if result.id})
        for call in turn.calls:
            known = by_id.get(call.id) if call.id else None
            if known is None and len(calls) < MAX_ITEMS:
                calls.append(call)
                if call.id:
                    by_id[call.id] = call
            elif known is not None and known.arguments is None:
                known.arguments = call.arguments
    answer.tool_runs = _add_runs(calls, by_id, answer.tools)
    open_calls = [call for call in calls if call.result is None and call.error is None]
    if any(call.id not in results for call in open_calls) and len(answer.own_models) > 1:
        for turn in answer.own_models[-1].before():
            results.update({result.id: result for result in turn.results if result.id})
    for call in open_calls:
        result = results.get(call.id or "")
        if result is not None:
            call.result = result.value
            call.error = result.error
    return calls


def _steps_in_conversation(answer: SpanAnswer) -> list[Turn]:
    """Return the steps before a lone model call that is the last step of a loop.

    They follow the user's last message.
    """
    if answer.root.role != "model":
        return []
    before = answer.before()
    last_user = max(
        (index for index, turn in enumerate(before) if turn.role == "user"), default=len(before)
    )
    return before[last_user + 1 :]


def _add_runs(
    calls: list[Call], by_id: dict[str, Call], tools: list[Node]
) -> list[tuple[Node, Call]]:
    """Complete calls by the tools' spans: by their id, or without an id the next call of that name.

    Spans that complete no call are added as calls. Return the spans with their calls.
    """
    runs: list[tuple[Node, Call]] = []
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
        if run.id:
            known = by_id.get(run.id)
        elif same_name:
            known = same_name.popleft()
        else:
            known = None
        if known is not None:
            known.result = known.result if run.result is None else run.result
            known.arguments = run.arguments if known.arguments is None else known.arguments
            if run.result is not None or run.error is not None:
                known.error = run.error  # else a message says it, which may have been read before
            known.duration_s = run.duration_s
            runs.append((node, known))
        elif len(calls) < MAX_ITEMS:
            calls.append(run)
            runs.append((node, run))
    return runs


def _error_of(span: ReadSpan) -> str | None:
    if not span.is_error and ERROR_TYPE not in span.attributes:
        return None
    return span.status_message or error_type_of(span)


def error_type_of(span: ReadSpan) -> str | None:
    """Return the class name of the exception, or the error's code.

    Return ``error`` if a failed span does not say it.
    """
    value = span.attributes.get(ERROR_TYPE)
    if value is None:
        if not span.is_error:
            return None
        raised = (
            event.attributes.get("exception.type")
            for event in span.events
            if event.name == "exception"
        )
        value = next((name for name in raised if name), "error")
    return (short(str(value)) or "error").rpartition(".")[2] or "error"


def _usage(answer: SpanAnswer) -> Usage | None:
    """Return the tokens of all model calls, of nested agents too.

    If none reports any, return those of the evaluated span.
    """
    return usage_of(answer.models) or usage_of((answer.root,))


def usage_of(nodes: Iterable[Node]) -> Usage | None:
    """Return the sum of the tokens that the spans report. None if they report none."""
    totals: dict[str, int] = {}
    for node in nodes:
        for name in _TOKENS:
            count = node.facts.get(name)
            if count is not None and type(count) in (int, float) and 0 <= count < 1 << 53:
                totals[name] = totals.get(name, 0) + int(count)
    return construct(Usage, totals) if any(totals.values()) else None


def _cost(answer: SpanAnswer) -> float | None:
    cost = cost_of(answer.models)
    return cost_of((answer.root,)) if cost is None else cost


def cost_of(nodes: Iterable[Node]) -> float | None:
    """Return the sum of the costs that the spans report, in USD. None if they report none."""
    costs = [node.facts.get("cost") for node in nodes]
    numbers = [cost for cost in costs if isinstance(cost, int | float)]
    known = [float(cost) for cost in numbers if 0 <= cost < float("inf")]
    return sum(known) if known else None


def _context(answer: SpanAnswer) -> dict[str, Any] | None:
    nodes = sorted(answer.retrievals, key=lambda node: node.span.start_ns)
    documents: list[Any] = []
    for node in nodes:
        if node.mapper is not None:
            of_node = node.mapper.documents(node.span)
            node.documents = len(of_node)
            documents += of_node
    return {"documents": plain(documents[:MAX_ITEMS])} if documents else None


def _agent_config(answer: SpanAnswer) -> dict[str, Any] | None:
    for node in (answer.root, *answer.own_models):
        tools = node.mapper.tool_definitions(node.span) if node.mapper else None
        if tools:
            return {"tools": tools}
    return None


def _annotations(answer: SpanAnswer, facts: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {name: facts[name] for name in _ANNOTATIONS if name in facts}
    if values.keys().isdisjoint(("experiment", "arm")):
        values |= flag_of(answer.root.span.events)
    values["environment"] = environment_of(answer.root.span.resource)
    mapper = answer.root.mapper
    values["tags"] = dict(mapper.tags(answer.root.span)) if mapper else {}
    known = [(name, value) for name, value in values.items() if value not in (None, "", {})]
    cleaned = {name: clean_annotation(name, value, str, _ignored) for name, value in known}
    annotations = {name: value for name, value in cleaned.items() if value}
    if answer.root.span.attributes.get(_CONVERSATION_ENDS) is True:
        annotations["conversation_ends"] = True
    return annotations


def environment_of(resource: Mapping[str, Any]) -> Any:
    """Return the environment of a process, from its resource.

    The attribute had another name before.
    """
    return next((resource[name] for name in _ENVIRONMENTS if resource.get(name)), None)


def _ignored(why: str) -> None:
    """Ignore a tag or version of another library that does not fit."""


def _name_of(answer: SpanAnswer) -> str | None:
    """Return an agent's or workflow's name if its span does not say it.

    The name is that of the first agent below an agent, else the span's. Return None for a model
    call.
    """
    root = answer.root
    if root.role == "model":
        return None
    if root.role == "agent" and answer.agents:
        first_agent = min(answer.agents, key=lambda node: node.span.start_ns)
        return short(first_agent.facts.get("agent"))
    return short(root.span.name)


def word_of(value: object) -> str | None:
    """Return the text, or the first of a list of texts.

    Finish reasons come as a list, or as its JSON.
    """
    if isinstance(value, str) and value.startswith("["):
        value = structured(value)
    if isinstance(value, list | tuple):
        value = value[0] if value else None
    return short(value) or None
