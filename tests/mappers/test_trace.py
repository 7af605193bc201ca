"""A trace read: which spans are answers, in any order, whatever the spans look like."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Any, ClassVar

import pytest

from agenteval_otel.capture.messages import Call, Result, Turn
from agenteval_otel.capture.spans.answer import SpanAnswer
from agenteval_otel.capture.spans.base import MAPPERS, Role, role_of
from agenteval_otel.capture.spans.dialects.gen_ai import GenAi
from agenteval_otel.capture.spans.span import ReadEvent
from agenteval_otel.capture.spans.trace import MAX_SPANS, read_traces
from agenteval_otel.mappers import ReadSpan, SpanMapper, read_trace, span_mapper
from tests.mappers.support import AGENT_NAMES, NAMES, contents_of, read_at_once, spans_of


def span(id: int, parent: int | None = None, start: int = 0, **attributes: Any) -> ReadSpan:
    named = {name.replace("__", "."): value for name, value in attributes.items()}
    return ReadSpan(
        1,
        id,
        parent,
        f"span {id}",
        1,
        start or id,
        (start or id) + 1_000,
        named,
        scope="some.library",
    )


def parts(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def agent(
    id: int, parent: int | None = None, name: str | None = "support", **attributes: Any
) -> ReadSpan:
    named = {} if name is None else {"gen_ai__agent__name": name}
    return span(id, parent, gen_ai__operation__name="invoke_agent", **named, **attributes)


def chat(
    id: int, parent: int | None = None, question: str = "q", answer: str = "a", **attributes: Any
) -> ReadSpan:
    messages = {
        "gen_ai__input__messages": json.dumps([parts("user", question)]),
        "gen_ai__output__messages": json.dumps([parts("assistant", answer)]),
    }
    return span(id, parent, gen_ai__operation__name="chat", **messages, **attributes)


def evaluated(spans: list[ReadSpan], **options: Any) -> list[int]:
    reading = read_trace(spans, **options)
    assert not reading.failed
    return [mapped.span.span_id for mapped in reading.answers]


@pytest.mark.parametrize("name", AGENT_NAMES)
def test_the_order_of_arrival_does_not_matter(name: str) -> None:
    """Batches arrive in any order."""
    spans = spans_of(name)
    expected = [mapped.input for mapped in read_trace(spans).answers]
    random.Random(7).shuffle(spans)
    assert [mapped.input for mapped in read_trace(spans).answers] == expected


def test_many_traces_are_read_as_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be read in one trace is that one's."""
    traces = [spans_of(name) for name in AGENT_NAMES] + [[], [span(1)], [agent(1), agent(2, 1)]]
    readings = read_traces(traces)
    for reading, alone in zip(readings, map(read_trace, traces), strict=True):
        assert [mapped.input for mapped in reading.answers] == [
            mapped.input for mapped in alone.answers
        ]
        assert (reading.not_understood, reading.left_out) == (alone.not_understood, alone.left_out)

    def broken(*_: Any) -> Any:
        raise KeyError("a secret")

    monkeypatch.setattr(MAPPERS["gen_ai"], "before", broken)
    failed, empty = read_traces([[agent(1)], []])
    assert (dict(failed.failed), failed.answers) == ({"gen_ai: KeyError": 1}, [])
    assert (dict(empty.failed), empty.answers) == ({}, [])


@pytest.mark.parametrize(
    ("spans", "ids"),
    [
        ([agent(1), chat(2, 1)], [1]),
        ([span(1), agent(2, 1), chat(3, 2)], [2]),  # below a server's span
        ([chat(2, 1)], [2]),  # the parent is in another service
        ([span(1), chat(2, 1), chat(3, 1)], [2, 3]),  # two questions of one request
        ([agent(1), span(2, 1), agent(3, 2, name="other"), chat(4, 3)], [1]),
        ([agent(1), agent(2, 1), chat(3, 2)], [1]),
        (
            [span(1, gen_ai__operation__name="execute_tool", gen_ai__tool__name="t"), chat(2, 1)],
            [2],
        ),
        ([span(1, gen_ai__operation__name="embeddings")], []),
        ([span(1)], []),
        ([], []),
    ],
)
def test_agents_and_lone_model_calls_are_evaluated(spans: list[ReadSpan], ids: list[int]) -> None:
    """Each where it lies below no other of them."""
    assert evaluated(spans) == ids


def test_a_workflow_is_evaluated_where_it_answers() -> None:
    """With an answer of its own, or around a single model call; otherwise what lies below it is."""
    output = json.dumps([parts("assistant", "both")])
    workflow = span(1, gen_ai__operation__name="invoke_workflow")
    assert evaluated([workflow, chat(2, 1)]) == [1]
    assert evaluated([workflow, chat(2, 1), chat(3, 1)]) == [2, 3]
    assert evaluated([workflow, agent(2, 1), chat(3, 2)]) == [2]
    answers = span(1, gen_ai__operation__name="invoke_workflow", gen_ai__output__messages=output)
    assert evaluated([answers, agent(2, 1), chat(3, 2), chat(4, 1)]) == [1]


def test_nested_agents_with_a_name_of_their_own_are_evaluated_where_that_is_set() -> None:
    """A span that stands for the same agent is not."""
    spans = [
        agent(1),
        agent(2, 1),
        agent(3, 2, name="expert"),
        chat(4, 3),
        agent(5, 3, name="critic"),
        chat(6, 5),
    ]
    assert evaluated(spans) == [1]
    assert evaluated(spans, nested_agents=True) == [1, 3, 5]


def test_the_agents_own_facts_come_before_those_of_its_model_calls() -> None:
    """Its answer, its question and its conversation; what it lacks the model calls have."""
    own = agent(
        1,
        gen_ai__conversation__id="agent's",
        gen_ai__input__messages=json.dumps([parts("user", "own question")]),
        gen_ai__output__messages=json.dumps([parts("assistant", "own answer")]),
    )
    below = chat(
        2, 1, gen_ai__conversation__id="model's", gen_ai__response__model="m", session__id="s"
    )
    [mapped] = read_trace([own, below]).answers
    assert (mapped.input.prompt, mapped.input.response) == ("own question", "own answer")
    assert (mapped.input.conversation_id, mapped.input.session_id, mapped.input.model) == (
        "agent's",
        "s",
        "m",
    )


def test_a_model_that_a_tool_asks_does_not_answer_for_the_agent() -> None:
    """Its tokens count."""
    tool = span(3, 1, gen_ai__operation__name="execute_tool", gen_ai__tool__name="summarise")
    asks = chat(4, 3, "long text", "summary", gen_ai__usage__output_tokens=7)
    [mapped] = read_trace(
        [agent(1), chat(2, 1, gen_ai__usage__output_tokens=5), tool, asks]
    ).answers
    assert mapped.input.response == "a"
    assert mapped.input.usage is not None
    assert mapped.input.usage.output_tokens == 12


def test_parents_in_a_circle_and_spans_that_are_their_own_parent_are_read() -> None:
    """The circle is broken before its first span."""
    assert evaluated([agent(1, 1), chat(2, 1)]) == [1]
    assert evaluated([agent(1, 3), span(2, 1), chat(3, 2)]) == [1]
    assert evaluated([span(5, 6), span(6, 5), agent(7, 6), chat(8)]) == [7, 8]


def test_a_span_that_comes_twice_counts_once() -> None:
    """The first one is taken."""
    reading = read_trace([agent(1), chat(2, 1), chat(2, 1, answer="other")])
    [mapped] = reading.answers
    assert (mapped.input.response, reading.left_out) == ("a", 1)


def test_clocks_that_disagree_give_no_negative_time() -> None:
    """An end before the start is zero seconds."""
    late = agent(1)
    late.start_ns, late.end_ns = 2_000, 1_000
    [mapped] = read_trace([late, chat(2, 1)]).answers
    assert mapped.input.duration_s == 0


def test_a_trace_beyond_the_limit_is_read_up_to_it() -> None:
    """A million empty spans cost no more; a chain as deep as the limit is read too."""
    spans = [agent(1), *(span(id, id - 1) for id in range(2, MAX_SPANS + 50))]
    reading = read_trace(spans)
    assert (len(reading.answers), reading.left_out) == (1, 49)


def test_unknown_spans_are_counted_by_their_scope() -> None:
    """`explain` can name them."""
    assert read_trace([agent(1), span(2, 1), span(3)]).not_understood == {"some.library": 2}


@pytest.fixture
def registry() -> Iterator[None]:
    before = dict(MAPPERS)
    yield
    MAPPERS.clear()
    MAPPERS.update(before)


METHODS = ("reads", "role", "before", "answer", "tool_call", "documents", "tags", "facts_of")


@pytest.mark.parametrize("method", METHODS)
def test_a_mapper_that_raises_is_counted_and_the_others_go_on(method: str, registry: None) -> None:
    """Under its name and the exception's, the answer of the other dialect beside it is there."""

    @span_mapper
    class Own(SpanMapper):
        name = "own"

        def reads(self, span: ReadSpan) -> bool:
            return "own" in span.attributes

        def role(self, span: ReadSpan) -> Any:
            return span.attributes["own"]

    def broken(*_: Any) -> Any:
        raise KeyError("a secret")

    setattr(Own, method, broken)
    spans = [
        chat(1),
        span(2, own="agent"),
        span(3, 2, own="model"),
        span(4, 2, own="tool"),
        span(5, 2, own="retrieval"),
    ]
    for item in spans:
        role_of(item)  # as the assembler does before, which does not count
    reading = read_trace(spans)
    assert 1 in [mapped.span.span_id for mapped in reading.answers]
    assert set(reading.failed) == {"own: KeyError"}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_read_later_is_what_is_read_at_once(name: str) -> None:
    """Each field alone and in any order, and only what something looks at."""
    expected = contents_of(read_at_once(spans_of(name)))
    for fields in permutations(("prompt", "message_history", "tool_calls")):
        answers = read_trace(spans_of(name)).answers
        for mapped, content in zip(answers, expected, strict=True):
            for field in fields:
                value = mapped.input.model_dump(include={field})[field]
                assert getattr(mapped.input, field) is None or value == content[field]
        assert [mapped.input.model_dump() for mapped in answers] == expected


class _Counting(SpanMapper):
    """Reads spans with ``own`` and notes what it is asked for."""

    name = "own"
    kind = "own"
    roles: ClassVar[Mapping[str, Role]] = {"agent": "agent", "model": "model", "tool": "tool"}
    asked: ClassVar[list[tuple[str, int]]] = []
    raises = False

    def before(self, span: ReadSpan) -> list[Turn]:
        return self._turns("before", span, "user")

    def answer(self, span: ReadSpan) -> list[Turn]:
        return self._turns("answer", span, "assistant")

    def tool_call(self, span: ReadSpan) -> Call | None:
        return Call("1", self._turns("tool_call", span, "tool")[0].role)

    def _turns(self, method: str, span: ReadSpan, role: str) -> list[Turn]:
        self.asked.append((method, span.span_id))
        if self.raises and span.span_id > 1:
            raise KeyError("a secret")
        return [Turn(role, f"{method} {span.span_id}")]


def own_run() -> list[ReadSpan]:
    return [span(1, own="agent"), span(2, 1, own="model"), span(3, 1, own="tool")]


def test_what_nothing_looks_at_is_not_read(registry: None) -> None:
    """Of a dialect that says that it raises nothing: the agent's own span shows the answer."""

    @span_mapper
    class Later(_Counting):
        reads_later = True
        asked: ClassVar[list[tuple[str, int]]] = []

    [mapped] = read_trace(own_run()).answers
    shown = [("before", 1), ("answer", 1)]
    assert mapped.input.response == "answer 1"
    assert Later.asked == shown
    assert [call.name for call in mapped.input.tool_calls or ()] == ["tool"]
    assert Later.asked == [*shown, ("answer", 2), ("tool_call", 3)]
    assert mapped.input.prompt == "before 1"
    assert Later.asked[4:] == [("before", 2)]
    assert [message.content for message in mapped.input.message_history or ()] == ["before 1"]
    assert len(Later.asked) == 5


def test_a_dialect_that_adds_to_another_is_read_at_once(registry: None) -> None:
    """Its methods may raise where those of the built-in dialect do not."""

    @span_mapper
    class Acme(GenAi):
        name = "acme"

        def tool_call(self, span: ReadSpan) -> Call | None:
            raise KeyError("a secret")

    run = [agent(1), chat(2, 1), span(3, 1, gen_ai__operation__name="execute_tool")]
    reading = read_trace(run)
    assert reading.answers == []
    assert set(reading.failed) == {"acme: KeyError"}


@pytest.mark.parametrize(("chars", "is_later"), [(100, True), (100_000, False)])
def test_the_spans_of_a_long_answer_are_not_kept(chars: int, is_later: bool) -> None:
    """They would hold its text a second time, for as long as the answer waits."""
    [mapped] = read_trace([chat(1, answer="x" * chars)]).answers
    assert mapped.answer.reads_later is is_later
    assert mapped.input.prompt == "q"


def test_a_dialect_that_raises_later_is_counted_and_the_field_is_none(registry: None) -> None:
    """Looking at a field never raises. The name of what raised is reported, and no content."""

    @span_mapper
    class Broken(_Counting):
        reads_later = True
        raises = True

    failed: list[str] = []
    [reading] = read_traces([own_run()], failed_later=failed.append)
    [mapped] = reading.answers
    assert not reading.failed
    assert not failed
    assert mapped.input.tool_calls is None
    assert mapped.input.message_history is None
    assert failed == ["own: KeyError", "own: KeyError"]


def test_who_looks_at_once_gets_what_was_read_first(registry: None) -> None:
    """The tool's span completes the call in the conversation, whoever has begun to read it."""
    answers: list[SpanAnswer] = []

    @span_mapper
    class Own(_Counting):
        reads_later = True

        def before(self, span: ReadSpan) -> list[Turn]:
            if answers:
                answers.pop().calls()  # as another thread that is done sooner
            call = Turn("assistant", calls=[Call("1", "look")])
            return [Turn("user", "q"), call, Turn("tool", "done")]

        def tool_call(self, span: ReadSpan) -> Call | None:
            return Call("1", "look", result="from the span")

    [mapped] = read_trace([span(1, own="model"), span(2, 1, own="tool")]).answers
    answers.append(mapped.answer)
    assert mapped.input.prompt == "q"
    history = mapped.input.message_history or []
    calls = [call for message in history for call in message.tool_calls or ()]
    assert [call.result for call in calls] == ["from the span"]


def test_an_error_that_a_message_says_stays_when_two_read_the_calls(registry: None) -> None:
    """The tool's span has no result: what the tool gave is in a message alone."""
    answers: list[SpanAnswer] = []

    @span_mapper
    class Own(_Counting):
        reads_later = True

        def answer(self, span: ReadSpan) -> list[Turn]:
            result = Result("1", "nothing", "timed out")
            call = Call("1", "look")
            return [
                Turn("assistant", calls=[call]),
                Turn("tool", results=[result]),
                Turn("assistant", "a"),
            ]

        def tool_call(self, span: ReadSpan) -> Call | None:
            if answers:
                answers.pop().calls()  # as another thread that is done sooner
            return Call("1", "look")

    [mapped] = read_trace([span(1, own="agent"), span(2, 1, own="tool")]).answers
    answers.append(mapped.answer)
    [call] = mapped.input.tool_calls or []
    assert (call.result, call.error) == ("nothing", "timed out")


def test_a_new_dialect_is_one_class(registry: None) -> None:
    """It is asked before the built-in ones, and replaces one of its name."""

    @span_mapper
    class Own(SpanMapper):
        name = "gen_ai"
        content_switch = "switch it on"

        def reads(self, span: ReadSpan) -> bool:
            return True

        def role(self, span: ReadSpan) -> Any:
            return "model"

    [mapped] = read_trace([chat(1)]).answers
    assert (mapped.mapper, mapped.content_switch) == ("gen_ai", "switch it on")
    assert len(MAPPERS) == 8


@pytest.mark.parametrize(
    ("attributes", "events", "expected"),
    [
        (
            {"agenteval__experiment__name": "short", "agenteval__experiment__arm": "new"},
            [],
            ("short", "new"),
        ),
        (
            {"feature_flag__key": "short", "feature_flag__result__variant": "new"},
            [],
            ("short", "new"),
        ),
        ({"feature_flag__key": "short", "feature_flag__variant": "old"}, [], ("short", "old")),
        ({}, [("short", "new"), ("short", "new")], ("short", "new")),
        ({}, [("short", "new"), ("other", "on")], (None, None)),
        ({"agenteval__experiment__arm": "new"}, [("short", "old")], (None, "new")),
        ({}, [], (None, None)),
    ],
)
def test_the_arm_of_an_experiment_is_an_attribute_or_the_only_feature_flag(
    attributes: dict[str, Any],
    events: list[tuple[str, str]],
    expected: tuple[str | None, str | None],
) -> None:
    """By our attributes, else by a flag on the span, else by the events of one flag."""
    flags = [
        ReadEvent(
            "feature_flag.evaluation",
            1,
            {"feature_flag.key": key, "feature_flag.result.variant": variant},
        )
        for key, variant in events
    ]
    root = agent(1, **attributes)
    root.events = flags
    (mapped,) = read_trace([root, chat(2, 1)]).answers
    assert (mapped.input.experiment, mapped.input.arm) == expected
