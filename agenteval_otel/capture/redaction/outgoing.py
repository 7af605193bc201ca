"""What goes out of the process: inputs, results and plain data, redacted.

Every redactor that is configured is applied.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter

from agenteval_otel.capture.redaction.personal import NUMBER_KEY
from agenteval_otel.capture.redaction.redactor import Redactor
from agenteval_otel.capture.redaction.secrets import SCHEMA_KEYS, SCHEMA_TYPES, SECRET, TELLING_KEY
from agenteval_otel.components.blocking import part_of
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationInput, EvaluationResult
from agenteval_otel.models.inputs import RunStep
from agenteval_otel.models.value import Value, copy_with
from agenteval_otel.runtime.reentrancy import sign_of_life

FAILED: Final = "[redaction failed]"
V = TypeVar("V", bound=Value)
_ANY: Final = TypeAdapter(Any)

# Of the configuration, counted or measured: not a person's.
_KEPT_OF_INPUT: Final = frozenset(
    {
        "criteria",
        "timestamp",
        "usage",
        "cost",
        "duration_s",
        "stream_end",
        "response_form",
        "incomplete",
    }
)
_KEPT_OF_VALUES: Final[Mapping[type[Value], frozenset[str]]] = {
    RunStep: frozenset(
        {"kind", "parent", "began_s", "duration_s", "usage", "cost", "documents", "tool_call"}
    )
}
"""Of values within an input: numbers of tokens would be read as secrets by their names."""
_KEPT_OF_RESULT: Final = frozenset(
    {
        "criterion_name",
        "evaluator_type",
        "evaluator_id",
        "evaluator_version",
        "evaluator_kind",
        "normalized",
        "threshold",
        "probability",
        "least_probability",
        "probability_given_sampled",
        "sampling_reason",
        "started_ns",
        "ended_ns",
        "filler",
    }
)
_WORDS_OF_RESULT: Final = _KEPT_OF_RESULT | {"label", "reason_code", "error_type", "judgement"}
_KEPT_OF_AGGREGATED: Final = frozenset(
    {
        "overall_score",
        "timestamp",
        "evaluation_config_snapshot",
        "span",
        "call_id",
        "started_ns",
        "ended_ns",
        "response_ended_ns",
        "late",
        "sampling_probability",
        "sampling_reason",
        "sampling_scope",
        "stream_end",
        "incomplete",
        "results",
        "input_snapshot",
    }
)
_SHORTEST_NUMBER: Final = 10**6
_SHORT_CHARS: Final = 64
_MAX_KNOWN: Final = 1024
_CATEGORY: Final = re.compile(r"[^\W_][\w.:/+-]{0,39}(?: [\w.:/+-]{1,20}){0,2}")
_CATEGORY_CHARS: Final = 40


class Redaction:
    """Applies redactors, in order, to all that leaves. Blocks for as long as they take.

    Remembers short texts only.

    Texts are cut by `shorten` first. What holds nothing to take out comes back as the same object.
    Where a redactor raises, `FAILED` stands in the text's place, and `on_failure` gets its type and
    the error. Numbers and texts under a telling name (``{"password": "..."}``) are read together
    with that name.
    """

    def __init__(
        self,
        redactors: Sequence[Redactor],
        on_failure: Callable[[str, BaseException], None] = lambda *_: None,
        *,
        shorten: Callable[[str], str] = str,
    ) -> None:
        self.redactors = tuple(redactors)
        self._on_failure = on_failure
        self._shorten = shorten
        # Names of agents, models, labels and conversations come again and again. By field name and
        # text.
        self._known: dict[tuple[str, str], str] = {}

    def __repr__(self) -> str:
        return f"<Redaction {', '.join(redactor.type for redactor in self.redactors) or 'off'}>"

    def text(self, text: str, name: str = "") -> str:
        """Return the text to let out, read with its field's name.

        Return `FAILED` if a redactor raised.
        """
        text = self._shorten(text)
        known = self._known.get((name, text))
        if known is None:
            by_name = self._by_name(text, name) if _tells(name[:64]) else None
            known = self._redacted(text) if by_name is None else by_name
            if len(text) <= _SHORT_CHARS and len(name) <= _SHORT_CHARS and FAILED not in known:
                if len(self._known) >= _MAX_KNOWN:
                    self._known.clear()
                self._known[name, text] = known
        return text if known == text else known

    def short(self, name: str, text: str | None) -> str | None:
        """Return an id or a label to let out, read with its field's name."""
        return None if text is None else self.text(text, name)

    def input(self, evaluation_input: EvaluationInput) -> EvaluationInput:
        """Return the input to let out."""
        return self.model(evaluation_input, _KEPT_OF_INPUT)

    def result(
        self, aggregated: AggregatedEvaluationResult, *, whole: bool = True
    ) -> AggregatedEvaluationResult:
        """Return the redacted result.

        Unless `whole`, telemetry has already redacted its input, labels and reason codes.
        """
        if not self.redactors:
            return aggregated
        kept = _KEPT_OF_RESULT if whole else _WORDS_OF_RESULT
        results = []
        for result in aggregated.results:
            is_redacted_label = not whole and isinstance(result.score, str)
            results.append(self.model(result, kept | {"score"} if is_redacted_label else kept))
        update: dict[str, Any] = {"results": tuple(results)}
        if whole and aggregated.input_snapshot is not None:
            update["input_snapshot"] = self.input(aggregated.input_snapshot)
        return self.model(copy_with(aggregated, update), _KEPT_OF_AGGREGATED)

    def model(self, value: V, kept: frozenset[str] = frozenset()) -> V:
        """Return one of our own values with its texts redacted.

        The fields that are `kept` stay as they are.
        """
        if not self.redactors:
            return value
        changed: dict[str, Any] = {}
        extra = value.__pydantic_extra__ or {}
        fields = value.__dict__ | extra  # once: of an input it is a property, 1 us
        for name in (*_fields_of(type(value), kept), *extra):
            before = fields[name]
            try:
                after = self._value(before, name)
            except Exception as error:
                # It has no form that can be redacted, by its depth or by its methods.
                self._on_failure("value", error)
                after = _failed_like(before)
            if after is not before:
                changed[name] = after
        return copy_with(value, changed) if changed else value

    def _redacted(self, text: str) -> str:
        for redactor in self.redactors:
            try:
                sign_of_life()  # each text has the time of a stall: an answer may have many
                with part_of("redaction", redactor):
                    text = redactor.redact(text)
                if not isinstance(text, str):
                    raise TypeError(f"redact must give text, found {type(text).__name__}")
            except Exception as error:
                self._on_failure(redactor.type, error)
                return FAILED
        return text

    def _value(self, value: object, name: str = "") -> Any:
        if value is None or isinstance(value, bool | float):
            return value
        if isinstance(value, str):
            return self.text(value, name)
        if isinstance(value, int):
            if -_SHORTEST_NUMBER < value < _SHORTEST_NUMBER:
                return value
            text = str(value)
            redacted = self.text(text, name)
            return value if redacted is text else redacted
        if isinstance(value, Value):
            return self.model(value, _KEPT_OF_VALUES.get(type(value), frozenset()))
        if isinstance(value, Mapping):
            # What lies in an object under ``password`` is one, whatever its own names are.
            above = name if _holds_one(name[:64]) and not _is_schema(value) else ""
            pairs: dict[Any, Any] = {}
            for key, item in value.items():
                redacted_key = self.text(key) if isinstance(key, str) else key
                has_own_name = not above or _tells(str(key)[:64])
                pairs[redacted_key] = self._value(item, str(key) if has_own_name else above)
            return value if _are_pairs_of(value, pairs) else pairs
        if isinstance(value, list | tuple | set | frozenset):
            items = [self._value(item, name) for item in value]
            same = all(after is before for after, before in zip(items, value, strict=True))
            if same:
                return value
            return tuple(items) if isinstance(value, tuple) else items
        is_bytes = isinstance(value, bytes | bytearray)
        plain = str(value) if is_bytes else _ANY.dump_python(value, mode="json", fallback=str)
        return self._value(plain, name)

    def _by_name(self, text: str, name: str) -> str | None:
        """Return the text, read as the value of its name.

        Return None if the name says no more than the text itself.
        """
        before = f"{json.dumps(name, ensure_ascii=False)}: "
        whole = before + json.dumps(text, ensure_ascii=False)
        redacted = self._redacted(whole)
        if redacted == whole:
            return None
        if redacted.startswith(f'{before}"') and redacted.endswith('"'):
            with contextlib.suppress(ValueError):
                return str(json.loads(redacted[len(before) :]))
        return FAILED if FAILED in redacted else SECRET


def _are_pairs_of(value: Mapping[Any, Any], pairs: Mapping[Any, Any]) -> bool:
    """Tell whether the pairs are those of the mapping, with the same objects as values."""
    if len(pairs) != len(value):
        return False
    return all(key in value and value[key] is item for key, item in pairs.items())


@functools.lru_cache(maxsize=_MAX_KNOWN)
def _tells(name: str) -> bool:
    return bool(TELLING_KEY.search(name) or NUMBER_KEY.search(name))


@functools.lru_cache(maxsize=_MAX_KNOWN)
def _holds_one(name: str) -> bool:
    """Tell whether a name ends as a telling name does: not ``token_usage``."""
    is_last = any(match.end() == len(name) for match in TELLING_KEY.finditer(name))
    return is_last or NUMBER_KEY.search(name) is not None


def _is_schema(value: Mapping[Any, Any]) -> bool:
    """Tell whether an object describes a value instead of holding it, as definitions of tools do."""
    kind = value.get("type")
    return (isinstance(kind, str) and kind in SCHEMA_TYPES) or not SCHEMA_KEYS.isdisjoint(value)


@functools.cache
def _fields_of(model: type[Value], kept: frozenset[str]) -> tuple[str, ...]:
    return tuple(name for name in model.model_fields if name not in kept)


def _failed_like(value: object) -> Any:
    if isinstance(value, Mapping):
        return {FAILED: True}
    return type(value)() if isinstance(value, list | tuple) else FAILED


def is_category(value: str) -> bool:
    """Tell whether a text reads like a category.

    A category has at most 40 characters, three words and three digits.
    """
    if len(value) > _CATEGORY_CHARS:
        return False
    return _reads_like_one(value if type(value) is str else str.__str__(value))


@functools.lru_cache(maxsize=_MAX_KNOWN)  # the same few words come with every answer
def _reads_like_one(value: str) -> bool:
    return _CATEGORY.fullmatch(value) is not None and sum(map(str.isdigit, value)) <= 3


def without_content(result: EvaluationResult) -> EvaluationResult:
    """Return the result without what may quote the conversation."""
    fields = result.__dict__
    changes: dict[str, Any] = {
        name: None for name in ("reasoning", "metadata") if fields[name] is not None
    }
    if result.error:
        changes["error"] = result.error_type or "error"
    if result.skip_reason is not None:
        reason = result.skip_reason.partition(":")[0]
        changes["skip_reason"] = reason if is_category(reason) else "skipped"
    return copy_with(result, changes) if changes else result
