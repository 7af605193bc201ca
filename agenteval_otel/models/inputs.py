"""The input: the captured interaction, and the criteria it is scored by."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Final, Literal, Self, TypeGuard

from pydantic import (
    ConfigDict,
    Field,
    FiniteFloat,
    field_validator,
    model_validator,
)

from agenteval_otel.models.tool_calls import fields_of_call
from agenteval_otel.models.value import (
    PartlyRead,
    Value,
    completed,
    construct,
    field_names,
    refuse_truth_value,
)
from agenteval_otel.runtime.nearest import nearest
from agenteval_otel.semconv import ANNOTATIONS, TAG

StreamEnd = Literal["completed", "error", "abandoned"]
ResponseForm = Literal["json"]
StepKind = Literal["agent", "model", "retrieval", "tool"]
Incomplete = Literal["parent_missing", "spans_left_out"]
"""Why an answer may have more than its spans showed when it was evaluated."""
_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")
ROOTS = {
    "response": "response",
    "prompt": "prompt",
    "groundTruth": "ground_truth",
    "ground_truth": "ground_truth",
    "context": "context",
}
"""What a path to a value begins with, and the field that it is."""
_MOST_REFERENCES = 100  # each is compared, or embedded
_ANSWERING = ("assistant", "ai", "model")
_BETWEEN = ("tool", "function")


class EvaluationCriteria(Value):
    """A quality that is scored.

    Attributes:
        name: Unique id. A slug (letters, digits, ``_ . -``) wherever it becomes part of an
            attribute name.
        scale: ``binary``, ``pass/fail``, ``likert5`` (1-5), ``numeric`` (0-1), whole numbers such
            as ``0-100``, or a custom word. With `minimum` and `maximum` a declared range.
        weight: Share in the overall score. None counts as 1, 0 leaves the criterion out.
        threshold: Raw score from which on (inclusive) the label is ``pass``.
        objective: Share of passing results that the criterion should hold, 0-1. Alerts come from
            it.
        of_last: The objective is breached once more than its share of the last so many verdicts
            fail, 1-10,000 (of 1: once any of them does), without regard to chance. None lets
            statistics decide.
        independent: True takes the turns of a conversation as independent of one another, and
            failures for one reason too: breaches are detected sooner. Where they are not, false
            alarms come.
    """

    name: str
    description: str = ""
    scale: str = "binary"
    weight: FiniteFloat | None = None
    threshold: FiniteFloat | None = None
    objective: FiniteFloat | None = None
    of_last: int | None = Field(default=None, ge=1, le=10_000)
    independent: bool = False
    minimum: FiniteFloat | None = None
    maximum: FiniteFloat | None = None

    _is_a_number = field_validator(
        "weight", "threshold", "objective", "of_last", "minimum", "maximum", mode="before"
    )(refuse_truth_value)


class ToolCall(Value):
    """One tool call of the agent.

    It has the name, the arguments as they were passed, and the result where it is known.

    Reads the forms of the providers too, such as OpenAI's (``{id, function: {name, arguments}}``,
    or the name itself as ``function``), Anthropic's (``{id, name, input}``) and LangChain's (``{id,
    name, args}``).

    Attributes:
        error: Why the tool failed, where it did and that is known.
        duration_s: Seconds that it took, where that is known (from spans).
    """

    name: str
    arguments: Any = None
    result: Any = None
    id: str | None = None
    error: str | None = None
    duration_s: float | None = None

    @model_validator(mode="before")
    @classmethod
    def _other_forms(cls, data: object) -> Any:
        return fields_of_call(data) if isinstance(data, Mapping) else data


class Message(Value):
    """One message of the conversation. Unknown fields are kept.

    A `content` that is a list is read as its parts.
    """

    model_config = ConfigDict(extra="allow")

    role: str
    content: str | None = None
    id: str | None = None
    content_parts: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    tool_calls: list[ToolCall] | None = None

    @model_validator(mode="before")
    @classmethod
    def _content_of_parts(cls, data: object) -> Any:
        if not isinstance(data, Mapping) or not isinstance(data.get("content"), list | tuple):
            return data
        parts: list[Any] = []
        texts: list[str] = []
        for part in data["content"]:
            if isinstance(part, str):
                part = {"type": "text", "text": part}
            parts.append(part)
            if isinstance(part, Mapping) and part.get("type") == "text":
                text = part.get("text")
                if isinstance(text, str):
                    texts.append(text)
        fields = {**data, "content": "\n".join(texts) or None}
        own_parts = data.get("contentParts", data.get("content_parts"))
        if own_parts is None:
            fields["content_parts"] = parts
        return fields


class Usage(Value):
    """Tokens that the agent's own model used.

    Those read from and written to the provider's cache are input tokens.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None


class RunStep(Value):
    """Holds one step of an answer's run, as its span shows it.

    Attributes:
        kind: A call of a model, a tool that ran, retrieval, or an agent below the evaluated one.
        name: Of the model, the tool, the retriever or the agent.
        parent: Index of the step around it, which is an earlier one. None if the run itself is.
        began_s: Seconds from the beginning of the answer. Below 0 if a clock of another host is
            behind. None if the span does not say it.
        duration_s: None if the span ended before it began, or does not say when it ended.
        finish_reason: The model's own word for why it stopped. `usage` and `cost` (USD) are of this
            call alone.
        query: What was searched for. It is content.
        documents: How many documents the retrieval found. `context` has those of all retrieval, by
            `began_s`.
        tool_call: Index of the call in `tool_calls`, which has its arguments and its result. None
            for tools of agents below.
    """

    kind: StepKind
    name: str | None = None
    parent: int | None = None
    began_s: float | None = None
    duration_s: float | None = None
    error_type: str | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    cost: float | None = None
    query: str | None = None
    documents: int | None = None
    tool_call: int | None = None


class MemoryStats(Value):
    """The agent's memory when it answered.

    The fields are different keys, entries, bytes, and the times of the oldest and newest entry.
    """

    keys: int | None = None
    total_entries: int | None = None
    total_size: int | None = None
    oldest: int | float | str | None = None
    newest: int | float | str | None = None


_ANNOTATED = frozenset({*ANNOTATIONS, "tags"})


class Annotations(Value):
    """Values to group results by, see `annotate`.

    Attributes:
        prompt_name: Which of the application's prompts answered, such as ``refunds``.
        prompt_version: Its version.
        user_id: Who asked. For monitored answers it is hashed, unless the settings say otherwise.
        environment: Where it ran, such as ``production``.
        experiment: Which experiment the answer belongs to, such as ``shorter-answers``.
        arm: The experiment's arm for the question, such as ``control``.
        service: The service whose spans were read. None for answers of this process.
        service_version: From the resource of the service that answered.
        tags: The application's own, such as ``{"tenant": "acme"}``.
    """

    prompt_name: str | None = None
    prompt_version: str | None = None
    user_id: str | None = None
    environment: str | None = None
    experiment: str | None = None
    arm: str | None = None
    service: str | None = None
    service_version: str | None = None
    tags: dict[str, str] | None = None

    @property
    def annotations(self) -> dict[str, str]:
        """Return the annotations that are set, by the names of their attributes."""
        if _ANNOTATED.isdisjoint(self.__pydantic_fields_set__):
            return {}
        named: dict[str, str] = {}
        for name, attribute in ANNOTATIONS.items():
            value = getattr(self, name)
            if value:
                named[attribute] = value
        if self.tags:
            for key, value in self.tags.items():
                named[TAG + key] = value
        return named


class EvaluationInput(PartlyRead, Annotations):
    """The captured interaction: what an evaluator sees. Unknown fields are refused.

    Attributes:
        response: The answer: text, or (offline only) a message, the messages of a conversation, or
            any JSON value. None is not the same as an empty text.
        response_form: ``json`` where the response is the JSON of the handler's own data, which has
            no text in a field of a known name. None for other answers.
        ground_truth: The reference answer: text, a list of texts of which the nearest counts, or
            any JSON value.
        criteria: The criteria to score. Empty means each evaluator's own.
        context: What the agent was given. A list is one of documents.
        error_type: Class name of the exception that the handler raised instead of answering.
        stream_end: How a streamed answer ended. None for answers that were not streamed.
        incomplete: The spans that it was read from were not all of its trace: a step's parent never
            came, or the trace has more spans than are kept. None where nothing is known to lack.
        cost: In USD. `duration_s` is in seconds.
        turns: How often the agent asked its model for this answer.
        finish_reason: The model's own word for why it stopped, such as ``stop`` or ``length``.
        steps: The run's steps in the order of their beginning, at most 500. Set for answers that are
            read from spans, if they are stored with content. Evaluators of others have None.
        conversation: The turns of a whole conversation, oldest first: inputs, or its messages. Then
            `response` and `prompt` are the last answer's and its question, `message_history` all
            before, `tool_calls` those of all turns, `usage`, `cost`, `duration_s` and `turns` sums,
            unless they are set. None for one answer.
        conversation_ends: The application says that the conversation is over with this answer.
    """

    later_fields: ClassVar[tuple[str, ...]] = ("message_history", "prompt", "tool_calls")

    response: Any = None
    criteria: tuple[EvaluationCriteria, ...] = ()
    prompt: str | None = None
    context: dict[str, Any] | None = None
    ground_truth: Any = None
    agent_config: dict[str, Any] | None = None
    message_history: list[Message] | None = None
    timestamp: float | None = None
    session_id: str | None = None
    agent_id: str | None = None
    metadata: dict[str, Any] | None = None
    agent: str | None = None
    tool_calls: list[ToolCall] | None = None
    usage: Usage | None = None
    cost: float | None = None
    duration_s: float | None = None
    turns: int | None = None
    memory_stats: MemoryStats | None = None
    response_id: str | None = None
    conversation_id: str | None = None
    model: str | None = None
    finish_reason: str | None = None
    error_type: str | None = None
    stream_end: StreamEnd | None = None
    response_form: ResponseForm | None = None
    steps: list[RunStep] | None = None
    incomplete: Incomplete | None = None
    conversation: list[EvaluationInput] | None = None
    conversation_ends: bool | None = None

    @field_validator("conversation", mode="before")
    @classmethod
    def _turns_of_messages(cls, value: object) -> Any:
        if not isinstance(value, list | tuple):
            return value
        if value and all(isinstance(item, Message) or _is_message(item) for item in value):
            return list(turns_of_messages([Message.model_validate(item) for item in value]))
        return list(value) or None

    @field_validator("conversation")
    @classmethod
    def _turns_are_answers(
        cls, value: list[EvaluationInput] | None
    ) -> list[EvaluationInput] | None:
        if any(turn.conversation is not None for turn in value or ()):
            raise ValueError("a turn is one answer, and has no conversation of its own")
        return value

    @model_validator(mode="after")
    def _filled_from_turns(self) -> Self:
        if self.conversation is not None:
            made = conversation_fields(self.conversation)
            unset = {name: value for name, value in made.items() if getattr(self, name) is None}
            completed(self, unset)
        return self

    @model_validator(mode="before")
    @classmethod
    def _has_known_fields(cls, data: object) -> Any:
        if not isinstance(data, Mapping):
            return data
        known = names_of(cls)
        unknown = [name for name in data if name not in known]
        if not unknown:
            return data
        words: list[str] = []
        are_meant = True
        for name in unknown:
            meant = nearest(name, field_names(cls), cutoff=0.6)
            are_meant = are_meant and meant is not None
            words.append(f"{name!r} (did you mean {meant!r}?)" if meant else repr(name))
        fields = "field" if len(unknown) == 1 else "fields"
        hint = "" if are_meant else f". Known: {', '.join(field_names(cls))}"
        raise ValueError(f"unknown {fields} {', '.join(words)}{hint}")

    _is_a_number = field_validator("cost", "duration_s", mode="before")(refuse_truth_value)

    @field_validator("context", mode="before")
    @classmethod
    def _documents(cls, value: object) -> Any:
        return {"documents": list(value)} if isinstance(value, list | tuple) else value

    def text_at(self, field: str = "response") -> str | None:
        """Return the text of a field, by the specification's path rules.

        Return None if there is no text.

        The root is ``response`` (also of an empty name), ``prompt``, ``groundTruth`` or
        ``context``. The rest is walked key by key, list indexes as segments (``context.list.1``). A
        message yields its first ``text`` part, or its ``content``. Messages yield the assistant's
        last one, if only tool messages follow it.
        """
        value = self.value_at(field)
        return value if isinstance(value, str) else _text_of(value)

    def value_at(self, field: str = "response") -> Any:
        """Return the value of a field as it is, by the same path rules.

        Return None if there is none.
        """
        root, _, path = (field or "response").partition(".")
        name = ROOTS.get(root)
        value = None if name is None else _plain(getattr(self, name))
        path = path.removesuffix(".")
        if path:
            for key in path.split("."):
                value = _plain(_step(value, key))
        return value

    @property
    def module(self) -> str | None:
        """Return the part of the system that answered: ``metadata["module"]``, else the agent."""
        names = ((self.metadata or {}).get("module"), self.agent, self.agent_id)
        return next((name for name in names if isinstance(name, str) and name.strip()), None)

    @property
    def response_text(self) -> str:
        """Return the answer as text. The text is empty if the answer has none."""
        response = self.response
        return response if isinstance(response, str) else self.text_at("response") or ""


def _plain(value: object) -> Any:
    """Return our own values in their JSON form, so that paths mean the same everywhere."""
    if isinstance(value, Value):
        return value.model_dump(by_alias=True, exclude_unset=True)
    return value


def _step(value: object, key: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(key)
    if isinstance(value, list | tuple) and _INDEX.fullmatch(key) and int(key) < len(value):
        return value[int(key)]
    return None


def _text_of(value: object) -> str | None:
    if isinstance(value, list | tuple):
        value = _answer_among([_plain(item) for item in value])
    if _is_message(value):
        content = value.get("content")
        texts = _texts_of(value.get("contentParts", value.get("content_parts")))
        if not texts and isinstance(content, list | tuple):
            inner_texts = _texts_of(content)
            if inner_texts:
                texts = ["".join(inner_texts)]
        value = texts[0] if texts else content
    return value if isinstance(value, str) else None


def _is_message(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping) and isinstance(value.get("role"), str)


def _answer_among(messages: list[Any]) -> Any:
    """Return the assistant's last message.

    Return None if a message that is no tool's follows it, or if an item is no message.
    """
    if not all(map(_is_message, messages)):
        return None
    for message in reversed(messages):
        if message["role"] not in _BETWEEN:
            return message if message["role"] in _ANSWERING else None
    return None


def _texts_of(parts: object) -> list[str]:
    texts: list[str] = []
    if not isinstance(parts, list | tuple):
        return texts
    for part in parts:
        if isinstance(part, Mapping) and part.get("type") in ("text", "output_text"):
            text = part.get("text")
            if isinstance(text, str):
                texts.append(text)
    return texts


def references_of(ground_truth: Any) -> list[Any]:
    """Return the reference answers: the first 100 of a list of texts, else the one value."""
    if not isinstance(ground_truth, list | tuple) or not ground_truth:
        return [ground_truth]
    if not all(isinstance(item, str) for item in ground_truth):
        return [ground_truth]
    return list(ground_truth[:_MOST_REFERENCES])


@cache
def names_of(model: type[Value]) -> frozenset[str]:
    """Return the names of a model's fields, in snake_case and camelCase."""
    names = set(model.model_fields)
    for field in model.model_fields.values():
        if field.alias:
            names.add(field.alias)
    return frozenset(names)


NO_GROUND_TRUTH: Final = "no ground truth"
"""Skip reason of an evaluator that needs a ground truth. With delayed ground truth, the evaluation
is kept pending.
"""


def is_blank(answer: object) -> bool:
    """Tell whether there is no reference answer: None, or blank text."""
    return answer is None or (isinstance(answer, str) and not answer.strip())


# --- conversations
_OF_ANSWER = (
    "response",
    "prompt",
    "timestamp",
    "response_id",
    "finish_reason",
    "error_type",
    "stream_end",
    "response_form",
)
_NEWEST = (
    "context",
    "ground_truth",
    "agent_config",
    "memory_stats",
    "metadata",
    "session_id",
    "conversation_id",
    "agent",
    "agent_id",
    "model",
    "incomplete",
    "conversation_ends",
    *Annotations.model_fields,
)
_SUMS = ("cost", "duration_s", "turns")


def conversation_fields(turns: Sequence[EvaluationInput]) -> dict[str, Any]:
    """Return the fields of the input of a whole conversation, by its turns, oldest first.

    A sum is set only if each turn has the value. Turns without an answer, like a final user
    message, do not count.
    """
    answered: Sequence[EvaluationInput] = [
        turn for turn in turns if turn.response is not None or turn.tool_calls or turn.error_type
    ]
    if not answered:
        answered = turns
    fields: dict[str, Any] = {name: getattr(answered[-1], name) for name in _OF_ANSWER}
    for name in _NEWEST:
        fields[name] = _newest_value(turns, name)
    for name in _SUMS:
        fields[name] = _sum([getattr(turn, name) for turn in answered])
    if any(turn.usage for turn in answered):
        usages = [turn.usage or Usage() for turn in answered]
        totals = {
            name: _sum([getattr(used, name) for used in usages]) for name in Usage.model_fields
        }
        fields["usage"] = construct(Usage, totals)
    calls: list[ToolCall] = []
    for turn in turns:
        calls.extend(turn.tool_calls or ())
    fields["tool_calls"] = calls or None
    fields["message_history"] = list(_history(answered)) or None
    return {name: value for name, value in fields.items() if value is not None}


def _newest_value(turns: Sequence[EvaluationInput], name: str) -> Any:
    for turn in reversed(turns):
        value = getattr(turn, name)
        if value is not None:
            return value
    return None


def _sum(parts: list[Any]) -> Any:
    return None if None in parts else sum(parts)


def _history(turns: Sequence[EvaluationInput]) -> Iterator[Message]:
    """Yield the messages before the last answer: the first turn's history, then turn by turn."""
    before = turns[0].message_history or []
    yield from before
    last_question = None
    if before and before[-1].role == "user":
        last_question = before[-1].content
    for number, turn in enumerate(turns):
        is_in_history = number == 0 and turn.prompt == last_question
        if turn.prompt is not None and not is_in_history:
            yield construct(Message, {"role": "user", "content": turn.prompt})
        if turn is not turns[-1] and (turn.response_text or turn.tool_calls):
            answer: dict[str, Any] = {"role": "assistant", "content": turn.response_text or None}
            if turn.tool_calls:
                answer["tool_calls"] = turn.tool_calls
            yield construct(Message, answer)


def turns_of_messages(messages: Sequence[Message]) -> Iterator[EvaluationInput]:
    """Split a conversation into turns.

    Each begins with a user message and has the agent's answers and tool calls.

    Tool results are matched to calls by id, else in order. Messages before the first question are
    its history.
    """
    questions = (number for number, message in enumerate(messages) if message.role == "user")
    first = next(questions, len(messages))
    before = list(messages[:first])
    turn: list[Message] = []
    for message in messages[first:]:
        if turn and message.role == "user" and turn[-1].role != "user":
            yield _turn_of(turn, before)
            before = []
            turn = []
        turn.append(message)
    if turn:
        yield _turn_of(turn, before)
    elif before:
        yield _turn_of(before, [])


def _turn_of(messages: Sequence[Message], before: list[Message]) -> EvaluationInput:
    questions: list[str] = []
    answers: list[str] = []
    calls: list[dict[str, Any]] = []
    for message in messages:
        calls += [dict(call) for call in message.tool_calls or ()]
        if message.role in _BETWEEN:
            _set_result(calls, message)
        elif message.content is not None and message.role == "user":
            questions.append(message.content)
        elif message.content is not None and message.role in _ANSWERING:
            answers.append(message.content)
    response: str | None = "\n\n".join(answers)
    if not response and not calls:
        response = None
    return EvaluationInput(
        prompt="\n\n".join(questions) or None,
        response=response,
        tool_calls=[ToolCall(**call) for call in calls] or None,
        message_history=before or None,
    )


def _set_result(calls: list[dict[str, Any]], message: Message) -> None:
    """Set the content of a tool's message as the result of the first call that waits for it."""
    id = message.tool_call_id
    for call in calls:
        is_meant = id is None or id == call["id"]
        if is_meant and call["result"] is None:
            call["result"] = message.content
            return
