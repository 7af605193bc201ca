"""The steps of a run, as spans show them: in order, in their tree, with times, and bounded."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from agenteval_otel.capture.spans.base import MAPPERS
from agenteval_otel.capture.spans.steps import MAX_STEPS
from agenteval_otel.mappers import ReadSpan, read_trace
from agenteval_otel.models.inputs import RunStep
from tests.mappers.support import AGENT_NAMES, answer_of, spans_of
from tests.mappers.test_trace import agent, chat, span

SECOND_NS = 10**9
START_NS = 1_790_000_000 * SECOND_NS


def steps_in(spans: list[ReadSpan], which: int = 0) -> list[RunStep]:
    return read_trace(spans).answers[which].steps() or []


def timed(made: ReadSpan, began_s: float, ended_s: float) -> ReadSpan:
    made.start_ns = START_NS + int(began_s * SECOND_NS)
    made.end_ns = START_NS + int(ended_s * SECOND_NS)
    return made


def tool(id: int, parent: int, name: str = "search", **attributes: Any) -> ReadSpan:
    operation = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": name}
    return span(id, parent, **operation, **attributes)


def retrieval(id: int, parent: int, documents: list[str], query: str = "refunds") -> ReadSpan:
    return span(
        id,
        parent,
        gen_ai__operation__name="retrieval",
        gen_ai__retrieval__query__text=query,
        gen_ai__retrieval__documents=json.dumps(documents),
    )


def shape_of(steps: list[RunStep]) -> list[tuple[str, str | None, int | None]]:
    return [(step.kind, step.name, step.parent) for step in steps]


@pytest.mark.parametrize("name", AGENT_NAMES)
def test_recorded_runs_have_their_steps_in_any_order_of_arrival(name: str) -> None:
    """Every model call that counts is a step with its tokens, within the time of the answer."""
    [first, *_] = read_trace(spans_of(name)).answers
    steps = first.steps() or []
    models = [step for step in steps if step.kind == "model"]
    assert len(models) >= (first.input.turns or 0)
    assert all(step.began_s is not None and step.began_s >= 0 for step in steps)
    ends = [(step.began_s or 0) + (step.duration_s or 0) for step in steps]
    assert max(ends) <= (first.input.duration_s or 0) + 0.01
    if first.input.usage is not None:
        tokens = [step.usage.input_tokens or 0 for step in models if step.usage]
        assert sum(tokens) == first.input.usage.input_tokens
    shuffled = spans_of(name)
    random.Random(7).shuffle(shuffled)
    assert read_trace(shuffled).answers[0].steps() == steps


def test_agents_below_a_tool_stand_in_it() -> None:
    """Their tools are steps without a call: the evaluated agent did not make it."""
    mapped = answer_of("pydantic_ai_two_agents")
    steps = mapped.steps() or []
    assert shape_of(steps) == [
        ("model", "gpt-5-mini", None),
        ("tool", "ask_expert", None),
        ("agent", "expert", 1),
        ("model", "gpt-5-mini", 2),
        ("tool", "get_weather", 2),
        ("model", "gpt-5-mini", 2),
        ("model", "gpt-5-mini", None),
    ]
    assert [step.tool_call for step in steps] == [None, 0, None, None, None, None, None]
    assert [call.name for call in mapped.input.tool_calls or ()] == ["ask_expert"]
    assert (steps[0].finish_reason, steps[0].cost) == ("tool_call", 1.75e-05)


def test_retrieval_has_its_question_and_number_of_documents() -> None:
    """`context` has the documents of all retrieval, in the order of the steps."""
    spans = [
        timed(agent(1), 0, 9),
        timed(retrieval(2, 1, ["c"], "q" * 5_000), 4, 5),
        timed(retrieval(3, 1, ["a", "b"]), 1, 2),
        timed(chat(4, 1), 6, 8),
    ]
    [mapped] = read_trace(spans).answers
    steps = mapped.steps() or []
    assert mapped.input.context == {"documents": ["a", "b", "c"]}
    assert [step.documents for step in steps] == [2, 1, None]
    assert steps[0].query == "refunds"
    assert 1_000 < len(steps[1].query or "") < 2_100, "a long one is cut"
    assert [(step.began_s, step.duration_s) for step in steps] == [(1, 1), (4, 1), (6, 2)]


def test_failures_are_named() -> None:
    spans = [
        timed(agent(1), 0, 9),
        timed(chat(2, 1, error__type="openai.RateLimitError"), 1, 2),
        timed(tool(3, 1, error__type="TimeoutError"), 3, 4),
        timed(chat(4, 1), 5, 6),
    ]
    assert [step.error_type for step in steps_in(spans)] == ["RateLimitError", "TimeoutError", None]


def test_clocks_that_lie_cost_the_time_alone() -> None:
    """A step before its answer, one that ends before it begins, and one without times."""
    early = timed(chat(2, 1), -2, 1)
    backwards = timed(tool(3, 1), 5, 4)
    timeless = tool(4, 1)
    timeless.start_ns = 0
    timeless.end_ns = 0
    steps = steps_in([timed(agent(1), 0, 9), timeless, backwards, early])
    assert [(step.kind, step.began_s, step.duration_s) for step in steps] == [
        ("tool", None, None),
        ("model", -2.0, 3.0),
        ("tool", 5.0, None),
    ]
    unknown = agent(1)
    unknown.start_ns = 0
    assert [step.began_s for step in steps_in([unknown, timed(chat(2, 1), 1, 2)])] == [None]


def test_a_step_never_stands_before_the_step_around_it() -> None:
    """Also if another host's clock says that it began earlier."""
    inner = [timed(agent(3, 2, "bank"), 1, 2), timed(chat(4, 3), 0.5, 0.9)]
    steps = steps_in(
        [timed(agent(1), 0, 9), timed(tool(2, 1), 3, 5), *inner, timed(chat(5, 1), 6, 7)]
    )
    assert [(step.kind, step.parent) for step in steps] == [
        ("tool", None), ("agent", 0), ("model", 1), ("model", None),
    ]  # fmt: skip


def test_a_loop_of_model_calls_begins_with_its_first() -> None:
    mapped = answer_of("openaiv2_tools")
    steps = mapped.steps() or []
    assert [(step.kind, step.finish_reason) for step in steps] == [
        ("model", "tool_calls"), ("model", "stop"),
    ]  # fmt: skip
    assert steps[0].began_s == 0.0


def test_what_stands_for_the_answer_is_no_step() -> None:
    """Agents of the same name, doubled model calls and other spans add none."""
    doubled = {"gen_ai__response__id": "r-1"}
    spans = [
        agent(1),
        agent(2, 1),
        chat(3, 2, **doubled),
        chat(4, 3, **doubled),
        span(5, 3, http__method="POST"),
        tool(6, 2),
        tool(7, 6),
    ]
    assert shape_of(steps_in(spans)) == [("model", None, None), ("tool", "search", None)]


def test_a_run_without_steps_has_none() -> None:
    output = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "a"}]}])
    [mapped] = read_trace([agent(1, gen_ai__output__messages=output)]).answers
    assert mapped.steps() is None


def test_a_dialect_that_raises_costs_the_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer was read without the tools of agents below it, and stays."""
    spans = [timed(agent(1), 0, 9), timed(tool(2, 1), 1, 5), timed(agent(3, 2, "bank"), 2, 4)]
    spans += [timed(tool(4, 3), 2, 3), timed(retrieval(5, 3, ["a"]), 3, 4), timed(chat(6, 1), 6, 7)]
    [mapped] = read_trace(spans).answers

    def broken(*_: Any) -> Any:
        raise KeyError("a secret")

    for name in ("tool_call", "before"):
        monkeypatch.setattr(MAPPERS["gen_ai"], name, broken)
    assert shape_of(mapped.steps() or []) == [
        ("tool", "search", None),
        ("agent", "bank", 0),
        ("tool", "span 4", 1),
        ("retrieval", "span 5", 1),
        ("model", None, None),
    ]


def test_long_and_hostile_runs_are_bounded() -> None:
    """The first steps are kept, with all around them; names are short and clean."""
    name = "\x00<script>\ud800" * 1_000
    spans = [timed(agent(1), 0, 10_000)]
    for number in range(2, 902):
        spans.append(timed(tool(number, 1, name), number, number + 1))
    deep = [timed(agent(number, number - 1, f"a{number}"), 1, 2) for number in range(2_001, 2_600)]
    deep[0].parent_id = 1
    steps = steps_in([*spans, *deep])
    assert len(steps) == MAX_STEPS == 500
    assert all(step.parent is None or step.parent < number for number, step in enumerate(steps))
    assert max(len(step.name or "") for step in steps_in(spans)) < 300
    assert "\x00" not in (steps_in(spans)[0].name or "")
    assert len(json.dumps([step.model_dump(mode="json") for step in steps])) < 200_000
