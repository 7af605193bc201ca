"""The run of an answer in the pages: stored steps as a tree on one time axis."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

from agenteval_otel.models import EvaluationInput, ToolCall, Usage
from agenteval_otel.models.inputs import RunStep
from agenteval_otel.ui.run_tree import Step, run_of
from tests.promises.test_b14_pages import HOSTILE
from tests.ui.conftest import Open
from tests.ui.stored import answer, score
from tests.ui.traced import store_traced


def run_with(*steps: RunStep, **fields: Any) -> Step:
    snapshot = EvaluationInput(**{"duration_s": 10.0, "steps": list(steps), **fields})
    run = run_of(answer(score(), input_snapshot=snapshot))
    assert run is not None
    return run


def outline(step: Step) -> list[Any]:
    """The names of the steps within, each with the list of those within it."""
    return [[inner.name, *outline(inner)] for inner in step.steps]


def model(**fields: Any) -> RunStep:
    return RunStep(kind="model", **fields)


def test_steps_are_a_tree_on_one_axis() -> None:
    """Each below the step around it, at its place in the whole time."""
    run = run_with(
        model(name="m", began_s=1, duration_s=2),
        RunStep(kind="tool", name="ask", began_s=4, duration_s=5),
        RunStep(kind="agent", name="bank", parent=1, began_s=4.5, duration_s=4),
        model(name="s", parent=2, began_s=5, duration_s=1),
    )
    assert outline(run) == [["m"], ["ask", ["bank", ["s"]]]]
    assert [step.bar for step in run.steps] == [(10.0, 20.0), (40.0, 50.0)]
    assert run.steps[1].steps[0].steps[0].bar == (50.0, 10.0)
    assert run.has_beginnings


def test_a_step_has_its_call_and_other_calls_follow() -> None:
    """Arguments and results are the call's; a call that no span ran is not lost."""
    run = run_with(
        RunStep(kind="tool", name="pay", began_s=1, duration_s=1, tool_call=1, error_type="E"),
        RunStep(kind="tool", name="ghost", began_s=2, tool_call=9),
        tool_calls=[
            ToolCall(name="mail", arguments="hello"),
            ToolCall(name="pay", arguments={"id": 7}, result="no", error="the bank is slow"),
        ],
    )
    pay, ghost, mail = run.steps
    assert [part.heading for part in pay.parts] == ["Arguments", "Result"]
    assert pay.error == "the bank is slow"
    assert (ghost.parts, ghost.facts) == ([], ["at 2.0 s"])
    assert (mail.name, mail.words, mail.bar) == ("mail", "hello", None)


def test_a_model_call_has_its_own_figures() -> None:
    """And the whole run the sums."""
    run = run_with(
        model(
            name="m",
            began_s=0.25,
            duration_s=2,
            usage=Usage(input_tokens=900, output_tokens=1),
            cost=0.01,
            finish_reason="stop",
        ),
        usage=Usage(input_tokens=1_800),
        turns=2,
    )
    assert list(run.steps[0].facts) == [
        "at 250 ms", "2.0 s", "900 tokens in", "1 token out", "0.0100 USD", "ended with stop",
    ]  # fmt: skip
    assert list(run.facts) == ["10.0 s", "2 calls", "1,800 tokens in"]


def test_documents_stand_below_the_retrieval_that_found_them() -> None:
    """Unless the context has others: then they stand as they are stored."""
    first = RunStep(kind="retrieval", name="guides", began_s=0, documents=2, query="refunds")
    second = RunStep(kind="retrieval", name="faq", began_s=1, documents=1)
    run = run_with(first, second, context={"documents": ["a", "b", "c"]})
    headings = [[part.heading for part in step.parts] for step in run.steps]
    assert headings == [["Query", "Document 1", "Document 2"], ["Document 1"]]
    assert run.steps[1].parts[0].text.text == "c"
    assert run.steps[0].words == "refunds"
    behind = second.model_copy(update={"began_s": -1.0})
    skewed = run_with(first, behind, context={"documents": ["c", "a", "b"]})
    assert skewed.steps[1].parts[0].text.text == "c", "a clock that is behind changes no document"
    other = run_with(first, second, context={"documents": ["a", "b"]})
    assert [step.kind for step in other.steps] == ["context", "retrieval", "retrieval"]


def test_a_bar_stays_on_the_axis() -> None:
    """A clock that is behind, one that is ahead, no end, no beginning, no time of the whole."""
    run = run_with(
        model(began_s=-3, duration_s=1),
        model(began_s=5),
        model(duration_s=5),
        model(),
        model(began_s=float("nan"), duration_s=float("inf")),
        model(began_s=1e308, duration_s=1e308),
    )
    assert "3.0 s before the run" in run.steps[0].facts
    bars = [step.bar for step in run.steps]
    assert bars[3:5] == [None, None]
    for bar in filter(None, bars):
        assert 0 <= bar.start <= bar.start + bar.width <= 100.001
    late = run_with(model(began_s=15, duration_s=5), model(began_s=0, duration_s=10))
    assert [step.bar for step in late.steps] == [(75.0, 25.0), (0.0, 50.0)], "a stream ends later"
    unknown = run_with(model(began_s=1, duration_s=1), duration_s=None)
    assert unknown.steps[0].bar == (50.0, 50.0)


def steps_within(step: Step) -> int:
    return sum(1 + steps_within(inner) for inner in step.steps)


def test_a_long_conversation_shows_the_first_steps_of_each_turn() -> None:
    """A page of a hundred turns stays one that a browser opens. What is left out has its number."""
    steps = [model(name=str(number), parent=number % 9 or None) for number in range(500)]
    turn = EvaluationInput(prompt="q", response="a", steps=steps)
    run = run_with(steps=None, conversation=[turn] * 100)
    assert len(run.steps) == 100
    assert steps_within(run) == 100 * (1 + 50)
    assert {step.left_out for step in run.steps} == {450}
    short = run_with(steps=None, conversation=[turn] * 5)
    assert all(steps_within(step) + step.left_out == 500 for step in short.steps)


def test_steps_beyond_those_of_a_stored_answer_are_counted() -> None:
    """A dataset may have more. A call whose step is not shown is no call that nothing ran."""
    steps = [RunStep(kind="tool", parent=0 if number % 10 else None) for number in range(600)]
    steps[599] = RunStep(kind="tool", tool_call=0)
    run = run_with(*steps, tool_calls=[ToolCall(name="pay")])
    assert run.left_out == 100
    assert "pay" not in {step.name for step in run.steps}


def test_parents_that_cannot_be_cost_the_level_alone() -> None:
    """A file may say anything: itself, a later one, none that there is, five hundred levels."""
    odd = [model(name=str(parent), parent=parent) for parent in (0, 5, -1, 1_000)]
    assert outline(run_with(*odd)) == [["0"], ["5"], ["-1"], ["1000"]]
    deep = [model(name=str(number), parent=number - 1) for number in range(1, 600)]
    run = run_with(model(name="0"), *deep)
    depth = 0
    step = run
    while step.steps:
        step = step.steps[0]
        depth += 1
    assert depth == 8
    assert len(run.steps) == 1


def test_turns_of_a_conversation_follow_each_other_on_the_axis() -> None:
    turns = [
        EvaluationInput(prompt="One?", duration_s=4, steps=[model(began_s=1, duration_s=1)]),
        EvaluationInput(prompt="Two?", duration_s=6, steps=[model(began_s=1, duration_s=1)]),
    ]
    run = run_of(answer(score(), input_snapshot=EvaluationInput(conversation=turns)))
    assert run is not None
    assert [turn.bar for turn in run.steps] == [(0.0, 40.0), (40.0, 60.0)]
    assert [turn.steps[0].bar for turn in run.steps] == [(10.0, 10.0), (50.0, 10.0)]


def test_hostile_steps_stay_text_and_small(open_pages: Open) -> None:
    """Thousands of steps whose names are markup cost no page and run nothing."""
    text = " ".join(HOSTILE)
    steps = [
        RunStep(
            kind="retrieval",
            name=text * 3,
            parent=number // 3 if number else None,
            query=text * 5,
            error_type=text,
            finish_reason=text,
            began_s=float(number),
            documents=2**60,
        )
        for number in range(3_000)
    ]
    client = open_pages([answer(score(), input_snapshot=EvaluationInput(steps=steps))])
    page = client.get(f"/answer/{client.pages.columns.id_of(0)}").text  # type: ignore[attr-defined]
    assert len(page) < 2_000_000
    assert "<script>" not in page
    assert "style=" not in page
    assert page.count("<details open>") == page.count('class="range failed"') > 100


def test_an_answer_read_from_spans_is_shown_with_its_times(
    open_pages: Open, tmp_path: Path
) -> None:
    """From the host's own spans to the page; without content nothing of the run is stored."""
    stored = {}
    for content in ("span_and_event", "no_content"):
        path = tmp_path / f"{content}.db"
        store_traced(path, content)
        with sqlite3.connect(path) as database:
            ((details,),) = database.execute("SELECT details FROM agenteval_evaluations")
        stored[content] = details
    assert "read_ledger" not in stored["no_content"]
    steps = json.loads(stored["span_and_event"])["input_snapshot"]["steps"]
    snapshot = EvaluationInput(duration_s=8.0, agent="support", steps=steps)
    client = open_pages([answer(score(), input_snapshot=snapshot)])
    page = client.get(f"/answer/{client.pages.columns.id_of(0)}").text  # type: ignore[attr-defined]
    bars = re.findall(r'<rect class="range[a-z ]*" x="([\d.]+)" width="([\d.]+)"', page)
    assert [(float(start), float(width)) for start, width in bars] == [
        (1.25, 6.25), (8.75, 18.75), (28.75, 7.5), (36.25, 41.25), (37.5, 38.75), (38.75, 11.25),
        (51.25, 23.75), (78.75, 20.0),
    ]  # fmt: skip
    assert "A bar shows when a step began" in page
