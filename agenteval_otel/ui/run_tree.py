"""The run of an answer as a tree: its turns, what was retrieved, the model, and the tools in order.

The tree has what is stored and no more. How long a part took is known for some, and when it began for
none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from agenteval_otel.models import AggregatedEvaluationResult, EvaluationInput, ToolCall
from agenteval_otel.models.inputs import Message, Usage
from agenteval_otel.offline.reports.figures import count_of
from agenteval_otel.ui.text import MAX_SHOWN, Shown, brief, duration_text, shown

_MOST_STEPS: Final = 100  # of one step
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


class Step(NamedTuple):
    """A step of a run.

    Attributes:
        kind: What it is: ``agent``, ``turn``, ``context``, ``model`` or ``tool``.
        words: The beginning of what went in.
        facts: What is known of it: how long it took, tokens.
        share: How much of the run's time it took, in percent. None if that is not known.
        error: Why it failed. Empty if it did not.
        left_out: How many steps within are not shown.
    """

    kind: str
    name: str
    words: str = ""
    facts: Sequence[str] = ()
    share: float | None = None
    error: str = ""
    parts: Sequence[RunPart] = ()
    steps: Sequence[Step] = ()
    left_out: int = 0

    @property
    def has_times(self) -> bool:
        """Tell whether one of the steps within has a share of the run's time."""
        return any(step.share is not None or step.has_times for step in self.steps)


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
    total_s = _seconds(snapshot.duration_s)
    texts = _Texts()
    if snapshot.conversation:
        inner = _first(_turns(snapshot.conversation, total_s, texts))
        left_out = len(snapshot.conversation) - len(inner)
    else:
        inner = _first(_steps(snapshot, evaluation.model, total_s, texts))
        left_out = _left_out(snapshot.tool_calls)
    name = snapshot.agent or evaluation.agent or "agent"
    return Step(
        "agent",
        brief(name, _NAME),
        facts=_facts_of_run(snapshot, total_s),
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
    steps = [_tool(call, None, texts) for call in calls]
    return EarlierMessage(brief(message.role, _NAME), texts.shown(message.content), steps)


def _turns(
    turns: Iterable[EvaluationInput], total_s: float | None, texts: _Texts
) -> Iterator[Step]:
    for turn in turns:
        duration_s = _seconds(turn.duration_s)
        steps = _first(_steps(turn, turn.model, total_s, texts))
        parts = []
        if turn.prompt:
            parts.append(RunPart("Prompt", texts.shown(turn.prompt)))
        if turn.response_text or turn.response:
            parts.append(RunPart("Answer", texts.shown(turn.response_text or turn.response)))
        words = brief(turn.prompt or "", _WORDS)
        facts = _facts_of_run(turn, duration_s)
        share = _share(duration_s, total_s)
        error = brief(turn.error_type or "", _NAME)
        left_out = _left_out(turn.tool_calls)
        yield Step("turn", "", words, facts, share, error, parts, steps, left_out)


def _steps(
    value: EvaluationInput, model: str | None, total_s: float | None, texts: _Texts
) -> Iterator[Step]:
    """Yield what was retrieved, the model, and the tool calls in their order."""
    if value.context:
        yield _context(value.context, texts)
    name = value.model or model
    facts = _facts_of_model(value)
    if name or facts:
        yield Step("model", brief(name or "", _NAME), facts=facts)
    for call in (value.tool_calls or [])[:_MOST_STEPS]:
        yield _tool(call, total_s, texts)


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


def _tool(call: ToolCall, total_s: float | None, texts: _Texts) -> Step:
    duration_s = _seconds(call.duration_s)
    parts = []
    if call.arguments is not None:
        parts.append(RunPart("Arguments", texts.shown(call.arguments)))
    if call.result is not None:
        parts.append(RunPart("Result", texts.shown(call.result)))
    words = brief(parts[0].text.text, _WORDS) if call.arguments is not None else ""
    facts = [] if duration_s is None else [duration_text(duration_s)]
    share = _share(duration_s, total_s)
    error = texts.shown(call.error).text
    return Step("tool", brief(call.name, _NAME), words, facts, share, error, parts)


def _facts_of_run(value: EvaluationInput, duration_s: float | None) -> list[str]:
    facts = []
    if duration_s is not None:
        facts.append(duration_text(duration_s))
    if value.cost is not None and math.isfinite(value.cost):
        facts.append(f"{value.cost:,.4f} USD")
    if value.stream_end is not None:
        facts.append(f"stream {value.stream_end}")
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


def _first(steps: Iterator[Step]) -> list[Step]:
    """Return the steps that a page shows of one step."""
    return list(islice(steps, _MOST_STEPS + 2))  # the context and the model besides


def _left_out(calls: Sequence[object] | None) -> int:
    return max(0, len(calls or ()) - _MOST_STEPS)


def _seconds(value: float | None) -> float | None:
    """Return a duration that can be shown."""
    return value if value is not None and math.isfinite(value) and value >= 0 else None


def _share(part_s: float | None, total_s: float | None) -> float | None:
    if part_s is None or not total_s:
        return None
    return min(100.0, 100 * part_s / total_s)
