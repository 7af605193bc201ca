"""A trace read: which of its spans are answers to evaluate, and the evaluation input of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from agenteval_otel.capture.spans.answer import Failed, Node, SpanAnswer, failure_of, input_of
from agenteval_otel.capture.spans.base import mapper_of
from agenteval_otel.capture.spans.span import ReadSpan
from agenteval_otel.capture.spans.steps import steps_of
from agenteval_otel.capture.spans.values import has_text
from agenteval_otel.models import EvaluationInput
from agenteval_otel.models.inputs import RunStep

MAX_SPANS: Final = 10_000
"""Spans of one trace that are looked at. The assembler keeps fewer."""
MAX_NESTED_AGENTS: Final = 100


@dataclass(slots=True, eq=False)
class Mapped:
    """An answer as its spans show it.

    Attributes:
        span: The evaluated span: the agent's, the workflow's, or a lone model call's.
        input: Without criteria and ground truth. `user_id` is not in it.
        user_id: As the application wrote it. The settings decide what is kept of it.
        mapper: The dialect of the evaluated span.
        content_switch: Where no content was captured, how it is switched on. None where there is an
            answer.
        spans: How many spans it was read from.
        is_unread: The answer has parts, of which none is text: there is nothing to judge.
        answer: The spans of the answer by what they are for. It keeps them alive.
    """

    span: ReadSpan
    input: EvaluationInput
    user_id: str | None
    mapper: str
    content_switch: str | None
    spans: int
    is_unread: bool
    answer: SpanAnswer

    def steps(self) -> list[RunStep] | None:
        """Return the run's steps, which `input` lacks: only stored content needs them.

        Return None if there are no steps.
        """
        return steps_of(self.answer)


@dataclass(slots=True, eq=False)
class TraceReading:
    """What a trace holds.

    Attributes:
        answers: In the order of their start.
        not_understood: Spans of no known dialect, by the name of their scope.
        failed: Answers whose mapper raised, by its name and the exception's, such as
            ``openinference: KeyError``.
        left_out: Spans beyond the limit, and repeated ones.
    """

    answers: list[Mapped] = field(default_factory=list)
    not_understood: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    left_out: int = 0


def read_trace(spans: Iterable[ReadSpan], *, nested_agents: bool = False) -> TraceReading:
    """Return the answers of one trace, from those of its spans that have arrived, in any order.

    Never raises.

    An answer is an agent, a workflow that shows an answer, or a model call, unless it is below
    another of these. `nested_agents` adds the agents below an evaluated one that have a name of
    their own.
    """
    return read_traces([spans], nested_agents=nested_agents)[0]


def read_traces(
    traces: Iterable[Iterable[ReadSpan]],
    *,
    nested_agents: bool = False,
    failed_later: Failed = lambda name: None,
) -> list[TraceReading]:
    """Read traces as `read_trace` does: many traces together take less time.

    History, prompt and tool calls of most inputs are read when something looks at them. Until then
    the input keeps the spans of the trace. `failed_later` gets the mapper that raises there, if one
    does, as `TraceReading.failed` has it. It may be called on any thread.
    """
    # Step by step for all of them: the code of all steps together does not fit the processor's
    # caches.
    trees: list[tuple[TraceReading, dict[int, Node]]] = []
    for spans in traces:
        reading = TraceReading()
        trees.append((reading, _nodes(spans, reading)))
    answers: list[tuple[TraceReading, SpanAnswer]] = []
    for reading, nodes in trees:
        answers += [(reading, answer) for answer in _answers(nodes, nested_agents, reading)]
    for read in SpanAnswer.read_shown, SpanAnswer.read_rest:
        understood = []
        for reading, answer in answers:
            try:
                read(answer)
                understood.append((reading, answer))
            except Exception as error:
                _count(reading, answer.root, error)
        answers = understood
    for reading, answer in answers:
        mapped = _mapped(answer, reading, failed_later)
        if mapped is not None:
            reading.answers.append(mapped)
    return [reading for reading, _ in trees]


def _answers(
    nodes: dict[int, Node], nested_agents: bool, reading: TraceReading
) -> list[SpanAnswer]:
    lone: dict[int | None, list[Node]] = {}
    answers: list[SpanAnswer] = []
    roots, order = _downwards(nodes)
    below = _below(order)
    for root in roots:
        for node in _evaluated(root, below, reading):
            if node.role == "model":
                lone.setdefault(node.span.parent_id, []).append(node)
            else:
                answers += _agents(node, nested_agents, reading)
    for siblings in lone.values():
        siblings.sort(key=_start)
        answers += _loops(siblings, reading)
    return sorted(answers, key=lambda answer: answer.started_ns)


def _start(node: Node) -> int:
    return node.span.start_ns


def _nodes(spans: Iterable[ReadSpan], reading: TraceReading) -> dict[int, Node]:
    """Return the spans by their ids, linked to their children.

    The first of several with one id counts.
    """
    nodes: dict[int, Node] = {}
    for span in spans:
        if span.span_id in nodes or len(nodes) == MAX_SPANS:
            reading.left_out += 1
            continue
        node = nodes[span.span_id] = Node(span)
        try:
            node.mapper = mapper_of(span, reading.failed)
            node.role = node.mapper.role(span) if node.mapper else None
        except Exception as error:
            _count(reading, node, error)
        if node.mapper is None:
            reading.not_understood[span.scope] += 1
    for node in nodes.values():
        parent = nodes.get(node.span.parent_id) if node.span.parent_id is not None else None
        if parent is not None and parent is not node:
            parent.children.append(node)
    return nodes


def _downwards(nodes: dict[int, Node]) -> tuple[list[Node], list[Node]]:
    """Return the nodes whose parent is unknown, and all nodes, each after its parent.

    A circle of parents is broken before its first span.
    """
    roots = [
        node
        for id, node in nodes.items()
        if node.span.parent_id not in nodes or node.span.parent_id == id
    ]
    order = list(roots)
    for node in order:  # grows
        order += node.children
    while len(order) < len(nodes):
        done = set(map(id, order))
        first = min((node for node in nodes.values() if id(node) not in done), key=_start)
        nodes[first.span.parent_id].children.remove(first)  # type: ignore[index]  # it lies in a circle
        roots.append(first)
        circle = [first]
        for node in circle:
            circle += node.children
        order += circle
    return roots, order


def _below(order: list[Node]) -> dict[int, tuple[int, int]]:
    """Return, for each span, how many outermost model calls and how many agents are below it."""
    below: dict[int, tuple[int, int]] = {}
    if all(node.role != "workflow" for node in order):
        return below  # it is asked of workflows only
    for node in reversed(order):
        models = 0
        agents = 0
        for child in node.children:
            models_below, agents_below = below[id(child)]
            models += 1 if child.role == "model" else models_below
            agents += agents_below + (child.role == "agent")
        below[id(node)] = (models, agents)
    return below


def _evaluated(
    root: Node, below: dict[int, tuple[int, int]], reading: TraceReading
) -> Iterator[Node]:
    """Yield agents, workflows that are answers, and model calls, each below no other of them."""
    stack = [root]
    while stack:
        node = stack.pop()
        if node.role == "plan":
            stack += _agents_below(node)  # a model call of a plan is no answer
        elif node.role in ("agent", "model") or (
            node.role == "workflow" and _is_answer(node, below, reading)
        ):
            yield node
        else:
            stack.extend(node.children)


def _agents_below(plan: Node) -> list[Node]:
    """Return the outermost agents below a plan."""
    agents: list[Node] = []
    stack = list(plan.children)
    while stack:
        node = stack.pop()
        if node.role == "agent":
            agents.append(node)
        else:
            stack += node.children
    return agents


def _is_answer(workflow: Node, below: dict[int, tuple[int, int]], reading: TraceReading) -> bool:
    """Tell whether a workflow answers.

    It has one outermost model call and no agent below it, or shows its own answer. In a dialect
    whose workflows ask models, one with neither below it does not answer.
    """
    if below[id(workflow)] == (1, 0):
        return True
    assert workflow.mapper is not None
    if workflow.mapper.workflows_ask_models and below[id(workflow)] == (0, 0):
        return False
    try:
        return has_text(workflow.answer())
    except Exception as error:
        _count(reading, workflow, error)
        return False


def _agents(root: Node, nested: bool, reading: TraceReading) -> list[SpanAnswer]:
    """Return the agent, and if `nested` is set those below it with a name of their own."""
    answers: list[SpanAnswer] = []
    agents = [root]
    for node in agents:  # grows
        try:
            answer = SpanAnswer(node)
        except Exception as error:
            _count(reading, node, error)
            continue
        answers.append(answer)
        if nested and len(agents) < MAX_NESTED_AGENTS:
            agents += [inner for inner in answer.agents if inner not in agents]
    return answers[: MAX_NESTED_AGENTS + 1]


def _loops(siblings: list[Node], reading: TraceReading) -> Iterator[SpanAnswer]:
    """Yield model calls without an agent above them.

    A call whose tool results a later call contains is a step of that call: together they are
    one answer.
    """
    steps = _steps_by_answer(siblings, reading)
    for node in siblings:
        if id(node) in steps:
            try:
                yield SpanAnswer(node, steps[id(node)])
            except Exception as error:
                _count(reading, node, error)


def _steps_by_answer(siblings: list[Node], reading: TraceReading) -> dict[int, list[Node]]:
    """Return the model calls that are answers, by the id of the node, each with its steps."""
    if len(siblings) == 1:
        return {id(siblings[0]): []}
    made: dict[str, Node] = {}  # tool calls that wait for their result, and by which model call
    steps: dict[int, list[Node]] = {}
    for node in siblings:
        answered: set[str] = set()
        called: list[str] = []
        try:
            for turn in node.before() if made else ():
                ids = [result.id for result in turn.results if result.id]
                answered.update(id for id in ids if id in made)
            for turn in node.answer():
                called += [call.id for call in turn.calls if call.id]
        except Exception as error:
            _count(reading, node, error)
            continue
        mine = steps.setdefault(id(node), [])
        for earlier in dict.fromkeys(made.pop(id) for id in answered):
            mine += [*steps.pop(id(earlier), ()), earlier]
        made |= dict.fromkeys(called, node)
    return steps


def _mapped(answer: SpanAnswer, reading: TraceReading, failed_later: Failed) -> Mapped | None:
    node = answer.root
    assert node.mapper is not None
    try:
        read = input_of(answer, failed_later)
    except Exception as error:
        _count(reading, node, error)
        return None
    is_unread = read.is_unread
    switch = None if read.has_content or is_unread else node.mapper.content_switch
    name = node.mapper.name
    return Mapped(
        node.span, read.input, read.user_id, name, switch, answer.spans, is_unread, answer
    )


def _count(reading: TraceReading, node: Node, error: Exception) -> None:
    reading.failed[failure_of(node, error)] += 1
