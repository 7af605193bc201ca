"""The run of an answer as a tree: its turns, model calls, tools, retrieval and agents in order.

The tree has what is stored and no more. Answers that were read from spans have each step with its
times. Of others the model calls are one step, and only some tools have a duration.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from agenteval_otel.models import AggregatedEvaluationResult, EvaluationInput, ToolCall
from agenteval_otel.models.inputs import Message, RunStep, Usage
from agenteval_otel.offline.reports.figures import count_of
from agenteval_otel.ui.text import MAX_SHOWN, Shown, brief, duration_text, shown

_MOST_STEPS: Final = 100  # of one step
_MOST_STORED: Final = 500  # of an answer; a dataset may have more
_MOST_OF_TURNS: Final = 5_000  # of all turns of a conversation
_DEEPEST: Final = 8
_RUN: Final = -1  # in place of a step's index
_LEAST_WIDTH: Final = 0.8  # percent
_LONGEST_S: Final = 1e12
_MOST_MESSAGES: Final = 50
_MOST_CHARACTERS: Final = 200_000  # of all texts of a run
_LEAST_SHOWN: Final = 200
_WORDS: Final = 90
_NAME: Final = 120
_DOCUMENTS: Final = "documents"


class RunPart(NamedTuple):
    """A text of a step, below a heading."""

    heading: str
    text: Shown


class Bar(NamedTuple):
    """Holds where a step lies in the run's time, in percent of it."""

    start: float
    width: float


class Step(NamedTuple):
    """A step of a run.

    Attributes:
        kind: What it is: ``agent``, ``turn``, ``context``, ``model``, ``retrieval`` or ``tool``.
        words: The beginning of what went in.
        facts: What is known of it: when it began, how long it took, tokens.
        bar: Its part of the run's time. None if neither its beginning nor its duration is known.
        began: It is known when it began. Otherwise its bar begins at the left.
        error: Why it failed. Empty if it did not.
        left_out: How many steps within are not shown.
    """

    kind: str
    name: str
    words: str = ""
    facts: Sequence[str] = ()
    bar: Bar | None = None
    began: bool = False
    error: str = ""
    parts: Sequence[RunPart] = ()
    steps: Sequence[Step] = ()
    left_out: int = 0

    @property
    def has_times(self) -> bool:
        """Tell whether one of the steps within has a part of the run's time."""
        return any(step.bar is not None or step.has_times for step in self.steps)

    @property
    def has_beginnings(self) -> bool:
        """Tell whether it is known of one of the steps within when it began."""
        return any(step.began or step.has_beginnings for step in self.steps)


class EarlierMessage(NamedTuple):
    """A message before the answer, with the tool calls in it."""

    role: str
    text: Shown
    steps: Sequence[Step]


def run_of(evaluation: AggregatedEvaluationResult) -> Step | None:
    """Return the run of an answer. None if its content is not stored."""
    snapshot = evaluation.input_snapshot
    if snapshot is None:
        return None
    texts = _Texts()
    if snapshot.conversation:
        axis = _Axis(_seconds(snapshot.duration_s))
        inner = list(islice(_turns(snapshot.conversation, axis, texts), _MOST_STEPS))
        left_out = len(snapshot.conversation) - len(inner)
    else:
        axis = _Axis(_length_of(snapshot))
        inner, left_out = _inner(snapshot, evaluation.model, axis, texts)
    name = snapshot.agent or evaluation.agent or "agent"
    return Step(
        "agent",
        brief(name, _NAME),
        facts=_facts_of_run(snapshot, _seconds(snapshot.duration_s)),
        error=brief(snapshot.error_type or "", _NAME),
        steps=inner,
        left_out=left_out,
    )


def messages_of(evaluation: AggregatedEvaluationResult) -> list[EarlierMessage]:
    """Return the last messages before the answer, at most fifty."""
    snapshot = evaluation.input_snapshot
    if snapshot is None:
        return []
    texts = _Texts()
    messages = (snapshot.message_history or [])[-_MOST_MESSAGES:]
    return [_message(message, texts) for message in messages]


def _message(message: Message, texts: _Texts) -> EarlierMessage:
    calls = (message.tool_calls or [])[:_MOST_STEPS]
    steps = [_tool(call, _Axis(None), texts) for call in calls]
    return EarlierMessage(brief(message.role, _NAME), texts.shown(message.content), steps)


class _Axis:
    """Places steps on the time axis of a run."""

    def __init__(self, total_s: float | None, zero_s: float = 0.0) -> None:
        self._total_s = total_s
        self._zero_s = zero_s

    def from_second(self, zero_s: float) -> _Axis:
        """Return the same axis for steps whose times count from this second on."""
        return _Axis(self._total_s, zero_s)

    def bar(self, began_s: float | None, duration_s: float | None) -> Bar | None:
        """Return the bar of a step. It never leaves the axis, whatever its clock says."""
        if not self._total_s or (began_s is None and duration_s is None):
            return None
        start = 0.0 if began_s is None else 100 * (self._zero_s + began_s) / self._total_s
        start = min(max(start, 0.0), 100 - _LEAST_WIDTH)
        width = 100 * (duration_s or 0.0) / self._total_s
        return Bar(start, min(max(width, _LEAST_WIDTH), 100 - start))


def _length_of(value: EvaluationInput) -> float | None:
    """Return the seconds of the time axis: a step may end after its agent, as a stream's does."""
    ends_s = []
    for step in (value.steps or [])[:_MOST_STORED]:
        began_s = _finite(step.began_s)
        if began_s is not None:
            ends_s.append(began_s + (_seconds(step.duration_s) or 0.0))
    return max([_seconds(value.duration_s) or 0.0, *ends_s]) or None


def _turns(turns: Sequence[EvaluationInput], axis: _Axis, texts: _Texts) -> Iterator[Step]:
    most = min(_MOST_STORED, _MOST_OF_TURNS // min(len(turns), _MOST_STEPS))
    before_s = 0.0  # when turns follow each other at once
    for turn in turns:
        duration_s = _seconds(turn.duration_s)
        steps, left_out = _inner(turn, turn.model, axis.from_second(before_s), texts, most)
        parts = []
        if turn.prompt:
            parts.append(RunPart("Prompt", texts.shown(turn.prompt)))
        if turn.response_text or turn.response:
            parts.append(RunPart("Answer", texts.shown(turn.response_text or turn.response)))
        yield Step(
            "turn",
            "",
            brief(turn.prompt or "", _WORDS),
            _facts_of_run(turn, duration_s),
            None if duration_s is None else axis.bar(before_s, duration_s),
            error=brief(turn.error_type or "", _NAME),
            parts=parts,
            steps=steps,
            left_out=left_out,
        )
        before_s += duration_s or 0.0


def _inner(
    value: EvaluationInput,
    model: str | None,
    axis: _Axis,
    texts: _Texts,
    most: int = _MOST_STORED,
) -> tuple[list[Step], int]:
    """Return the steps of one answer, and how many more there are.

    Only the first `most` of the stored steps are looked at.
    """
    calls = value.tool_calls or []
    if value.steps:
        tree = _Tree(value, axis, texts, most)
        steps, left_out = tree.below(_RUN)
        left_out += max(0, len(value.steps) - most)
        if not tree.has_all_documents and value.context:
            steps.insert(0, _context(value.context, texts))
        calls = tree.other_calls()
    else:
        steps = list(_untimed(value, model, texts))
        left_out = 0
    steps += [_tool(call, axis, texts) for call in calls[:_MOST_STEPS]]
    return steps, left_out + max(0, len(calls) - _MOST_STEPS)


def _untimed(value: EvaluationInput, model: str | None, texts: _Texts) -> Iterator[Step]:
    """Yield what was retrieved and the model calls as one step each."""
    if value.context:
        yield _context(value.context, texts)
    name = value.model or model
    facts = _facts_of_model(value)
    if name or facts:
        yield Step("model", brief(name or "", _NAME), facts=facts)


class _Tree:
    """Shows stored steps, each below the step around it.

    Attributes:
        has_all_documents: The steps of retrieval found exactly the documents of the context.
    """

    def __init__(self, value: EvaluationInput, axis: _Axis, texts: _Texts, most: int) -> None:
        stored = value.steps or []
        self._ran = {step.tool_call for step in stored if step.kind == "tool"}
        self._steps = stored[:most]
        self._calls = value.tool_calls or []
        self._axis = axis
        self._texts = texts
        self._below = _numbers_below(self._steps)
        self._documents = _documents_of(self._steps, value.context)
        self.has_all_documents = bool(self._documents)

    def below(self, number: int) -> tuple[list[Step], int]:
        """Return the steps below a step, and how many more there are."""
        numbers = self._below.get(number, [])
        steps = [self._shown(below) for below in numbers[:_MOST_STEPS]]
        return steps, len(numbers) - len(steps)

    def other_calls(self) -> list[ToolCall]:
        """Return the tool calls that no step ran."""
        return [call for number, call in enumerate(self._calls) if number not in self._ran]

    def _shown(self, number: int) -> Step:
        step = self._steps[number]
        began_s = _finite(step.began_s)
        duration_s = _seconds(step.duration_s)
        call = self._call_of(step)
        words, parts = _texts_of_call(call, self._texts)
        if step.query:
            words = brief(step.query, _WORDS)
            parts.append(RunPart("Query", self._texts.shown(step.query)))
        for place, document in enumerate(self._documents.get(number, ())[:_MOST_STEPS], 1):
            parts.append(RunPart(f"Document {place}", self._texts.shown(document)))
        error = self._texts.shown(call.error).text if call is not None else ""
        steps, left_out = self.below(number)
        return Step(
            step.kind,
            brief(step.name or "", _NAME),
            words,
            [*_facts_of_times(began_s, duration_s), *_facts_of_step(step)],
            self._axis.bar(began_s, duration_s),
            began_s is not None,
            error or brief(step.error_type or "", _NAME),
            parts,
            steps,
            left_out,
        )

    def _call_of(self, step: RunStep) -> ToolCall | None:
        number = step.tool_call
        if step.kind != "tool" or number is None or not 0 <= number < len(self._calls):
            return None
        return self._calls[number]


def _numbers_below(steps: Sequence[RunStep]) -> dict[int, list[int]]:
    """Return the numbers of the steps right below each step. Those too deep stand a level higher."""
    below: dict[int, list[int]] = {}
    levels = {_RUN: 0}
    parents: dict[int, int] = {}
    for number, step in enumerate(steps):
        parent = step.parent
        if parent is None or not 0 <= parent < number:  # a file may say anything
            parent = _RUN
        if levels[parent] == _DEEPEST:
            parent = parents[parent]
        parents[number] = parent
        levels[number] = levels[parent] + 1
        below.setdefault(parent, []).append(number)
    return below


def _documents_of(
    steps: Sequence[RunStep], context: Mapping[str, Any] | None
) -> dict[int, list[Any]]:
    """Return the documents of each retrieval. Empty if the context has others."""
    documents = (context or {}).get(_DOCUMENTS)
    retrievals = [number for number, step in enumerate(steps) if step.kind == "retrieval"]
    retrievals.sort(key=lambda number: _began_of(steps[number]))
    counts = [max(0, steps[number].documents or 0) for number in retrievals]
    if not isinstance(documents, list) or sum(counts) != len(documents):
        return {}
    rest = iter(documents)
    return {
        number: list(islice(rest, count)) for number, count in zip(retrievals, counts, strict=True)
    }


def _context(context: dict[str, Any], texts: _Texts) -> Step:
    documents = context.get(_DOCUMENTS)
    if isinstance(documents, list) and len(context) == 1:
        name = count_of(len(documents), "document")
        values = [(f"Document {number}", text) for number, text in enumerate(documents, 1)]
    else:
        name = count_of(len(context), "field")
        values = [(brief(field, _NAME), text) for field, text in context.items()]
    parts = [RunPart(heading, texts.shown(text)) for heading, text in values[:_MOST_STEPS]]
    left_out = len(values) - len(parts)
    return Step("context", name, parts=parts, left_out=left_out)


def _tool(call: ToolCall, axis: _Axis, texts: _Texts) -> Step:
    duration_s = _seconds(call.duration_s)
    words, parts = _texts_of_call(call, texts)
    facts = list(_facts_of_times(None, duration_s))
    error = texts.shown(call.error).text
    name = brief(call.name, _NAME)
    return Step("tool", name, words, facts, axis.bar(None, duration_s), error=error, parts=parts)


def _texts_of_call(call: ToolCall | None, texts: _Texts) -> tuple[str, list[RunPart]]:
    """Return the beginning of a call's arguments, and its texts."""
    parts: list[RunPart] = []
    words = ""
    if call is not None and call.arguments is not None:
        parts.append(RunPart("Arguments", texts.shown(call.arguments)))
        words = brief(parts[0].text.text, _WORDS)
    if call is not None and call.result is not None:
        parts.append(RunPart("Result", texts.shown(call.result)))
    return words, parts


def _facts_of_times(began_s: float | None, duration_s: float | None) -> Iterator[str]:
    if began_s is not None and began_s < 0:
        yield f"{duration_text(-began_s)} before the run"
    elif began_s is not None:
        yield f"at {duration_text(began_s)}"
    if duration_s is not None:
        yield duration_text(duration_s)


def _facts_of_step(step: RunStep) -> list[str]:
    facts = list(_tokens(step.usage))
    if step.cost is not None and math.isfinite(step.cost):
        facts.append(f"{step.cost:,.4f} USD")
    if step.finish_reason:
        facts.append(f"ended with {brief(step.finish_reason, _NAME)}")
    if step.documents is not None:
        facts.append(count_of(step.documents, "document"))
    return facts


def _facts_of_run(value: EvaluationInput, duration_s: float | None) -> list[str]:
    facts = []
    if duration_s is not None:
        facts.append(duration_text(duration_s))
    if value.cost is not None and math.isfinite(value.cost):
        facts.append(f"{value.cost:,.4f} USD")
    if value.stream_end is not None:
        facts.append(f"stream {value.stream_end}")
    if value.steps:
        facts += _facts_of_model(value)
    return facts


def _facts_of_model(value: EvaluationInput) -> list[str]:
    facts = []
    if value.turns is not None:
        facts.append(count_of(value.turns, "call"))
    facts += _tokens(value.usage)
    if value.finish_reason:
        facts.append(f"ended with {brief(value.finish_reason, _NAME)}")
    return facts


def _tokens(usage: Usage | None) -> Iterator[str]:
    if usage is None:
        return
    if usage.input_tokens is not None:
        cached = f", {usage.cache_read_tokens:,} from the cache" if usage.cache_read_tokens else ""
        yield f"{count_of(usage.input_tokens, 'token')} in{cached}"
    if usage.output_tokens is not None:
        yield f"{count_of(usage.output_tokens, 'token')} out"


class _Texts:
    """Cuts texts once there are too many for a page."""

    def __init__(self) -> None:
        self._left = _MOST_CHARACTERS

    def shown(self, value: object) -> Shown:
        text = shown(value, max(_LEAST_SHOWN, min(MAX_SHOWN, self._left)))
        self._left -= len(text.text)
        return text


def _seconds(value: float | None) -> float | None:
    """Return a duration that can be shown."""
    seconds = _finite(value)
    return seconds if seconds is not None and seconds >= 0 else None


def _began_of(step: RunStep) -> float:
    """Return when a step began, by which its documents stand in the context."""
    began_s = _finite(step.began_s)
    return -math.inf if began_s is None else began_s


def _finite(value: float | None) -> float | None:
    return value if value is not None and abs(value) <= _LONGEST_S else None  # NaN is None too
