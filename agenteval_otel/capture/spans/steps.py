"""The steps of an answer's run, with their times: model calls, tools, retrieval, nested agents.

They are made for answers of which the content is stored, once the answer has been read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from agenteval_otel.capture.build import last_question
from agenteval_otel.capture.fields import short
from agenteval_otel.capture.spans.answer import (
    Node,
    SpanAnswer,
    cost_of,
    error_type_of,
    usage_of,
    word_of,
)
from agenteval_otel.capture.text import clean
from agenteval_otel.models.inputs import RunStep
from agenteval_otel.models.value import construct

MAX_STEPS: Final = 500
_QUERY_CHARS: Final = 2_000


class _Place(NamedTuple):
    """Holds a step's place in the run.

    Attributes:
        order_ns: When it began, and never before the step around it did.
    """

    node: Node
    parent: Node | None
    order_ns: int


class _ToolRun(NamedTuple):
    """Holds the name of a tool that ran, and its index among the answer's calls."""

    name: str
    number: int | None


def steps_of(answer: SpanAnswer) -> list[RunStep] | None:
    """Return the first 500 steps in the order of their beginning, each after the step around it.

    Return None if there are no steps.
    """
    places = sorted(_places(answer), key=lambda place: place.order_ns)[:MAX_STEPS]
    numbers = {id(place.node): number for number, place in enumerate(places)}
    runs = _tool_runs(answer)
    steps = []
    for node, parent, _ in places:
        fields = {
            "kind": node.role,
            "parent": None if parent is None else numbers[id(parent)],
            "error_type": error_type_of(node.span),
            **_times(node, answer.started_ns),
            **_facts(node, runs),
        }
        known = {name: value for name, value in fields.items() if value is not None}
        steps.append(construct(RunStep, known))
    return steps or None


def _places(answer: SpanAnswer) -> Iterator[_Place]:
    """Yield the steps, each after the step around it.

    A client and its instrumentation may both have a span for one model call, or for one tool: the
    outer one counts.
    """
    # In the order of `SpanAnswer`, so that steps that began at once are in that of their documents.
    models = set(map(id, answer.models))
    agents = set(map(id, answer.agents))
    for start in answer.starts:
        stack: list[tuple[Node, Node | None, int, bool]] = [(start, None, 0, False)]
        while stack:
            node, parent, order_ns, in_tool = stack.pop()
            role = node.role
            if role == "agent" and id(node) in agents:
                in_tool = False
                is_step = True
            elif role == "tool":
                is_step = not in_tool
                in_tool = True
            else:
                is_step = role == "retrieval" or id(node) in models
            if is_step:
                order_ns = max(order_ns, node.span.start_ns)
                yield _Place(node, parent, order_ns)
                parent = node
            stack += [(child, parent, order_ns, in_tool) for child in node.children]


def _tool_runs(answer: SpanAnswer) -> dict[int, _ToolRun]:
    """Return the tools that ran, by the id of the node."""
    named = [call for call in answer.calls() if call.name]
    numbers = {id(call): number for number, call in enumerate(named)}
    return {id(node): _ToolRun(call.name, numbers.get(id(call))) for node, call in answer.tool_runs}


def _times(node: Node, answer_started_ns: int) -> dict[str, Any]:
    span = node.span
    times: dict[str, Any] = {}
    if span.start_ns > 0 and answer_started_ns > 0:
        times["began_s"] = (span.start_ns - answer_started_ns) / 1e9
    if span.end_ns >= span.start_ns > 0:
        times["duration_s"] = span.duration_s
    return times


def _facts(node: Node, runs: Mapping[int, _ToolRun]) -> dict[str, Any]:
    """Return what the step's span says, apart from its times."""
    if node.role == "model":
        facts = node.facts
        return {
            "name": short(facts.get("model")),
            "finish_reason": word_of(facts.get("finish_reason")),
            "usage": usage_of((node,)),
            "cost": cost_of((node,)),
        }
    if node.role == "tool":
        run = runs.get(id(node)) or _ToolRun(_name_of_tool(node), None)
        return {"name": clean(run.name, 256), "tool_call": run.number}
    if node.role == "retrieval":
        query = _query_of(node)
        return {"name": short(node.span.name), "query": query, "documents": node.documents}
    return {"name": short(node.facts.get("agent"))}


def _name_of_tool(node: Node) -> str:
    try:
        call = None if node.mapper is None else node.mapper.tool_call(node.span)
    except Exception:  # of a dialect of the user's own; the answer was read without it
        call = None
    return node.span.name if call is None else call.name or node.span.name


def _query_of(node: Node) -> str | None:
    try:
        query = last_question(node.before())
    except Exception:  # as above
        return None
    return clean(query, _QUERY_CHARS) if query else None
