"""Erasure for a person or before a time, and what stays of a stored result.

Scores without personal data stay. A rewritten result keeps an allow-list of fields, so a field that
is added later is removed until it is listed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from pydantic_core import to_json

from agenteval_otel.capture.annotations import hashed
from agenteval_otel.capture.redaction.outgoing import is_category, without_content
from agenteval_otel.capture.text import clean
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import AggregatedEvaluationResult, EvaluationInput, EvaluationResult
from agenteval_otel.models.value import copy_with
from agenteval_otel.semconv import OTHER

ERASED: Final = {"erased": True}
"""The metadata of a result from which content and ids were removed."""
_KEPT: Final = frozenset({
    "overall_score", "results", "timestamp", "agent", "model", "prompt_name", "prompt_version", "environment",
    "service", "started_ns", "ended_ns", "response_ended_ns", "late", "sampling_probability", "sampling_reason",
    "sampling_scope", "sampling_clustered", "has_ground_truth", "stream_end", "incomplete",
    "evaluation_config_snapshot",
})  # fmt: skip
_KEPT_OF_RESULT: Final = frozenset({
    "criterion_name", "score", "evaluator_type", "error", "skip_reason", "normalized", "label", "passed", "threshold",
    "reason_code", "error_type", "evaluator_id", "evaluator_version", "evaluator_kind", "calls_model",
    "suspected_injection", "shadow", "probability", "least_probability", "sampling_reason", "started_ns", "ended_ns",
    "raised",
})  # fmt: skip
_WORDS: Final = ("label", "reason_code", "error_type", "score")
_MAX_CHARS: Final = 200  # of an annotation
_HUMAN: Final = "human"
_REDACTED: Final = re.compile(r"\[[A-Z_]+\]|\[redaction failed\]")


class Erasure:
    """What is to be erased: a conversation, a user, or all before a moment.

    A user's conversations are included, since later turns repeat earlier ones. They are collected
    while stored results are read. A conversation on which the user only recorded feedback is not
    included.

    Args:
        conversations: Their ids, as ``conversation_id`` or ``session_id``.
        users: Ids as the application knows them, or as they are stored.
        before: What is older is erased. A time without a zone is in UTC.
        salts: Of the hashes under which user ids may be stored.
    """

    def __init__(
        self,
        *,
        conversations: Iterable[str] = (),
        users: Iterable[str] = (),
        before: datetime | None = None,
        salts: Iterable[str | None] = (),
    ) -> None:
        self.conversations = set(conversations)
        every_salt = {None, *salts}
        stored_forms: set[str] = set()
        for user in map(str.strip, users):
            stored_forms.add(clean(user, _MAX_CHARS))
            stored_forms.update(hashed(user, salt) for salt in every_salt)
        self.users = frozenset(stored_forms)
        if before is not None and not before.tzinfo:
            before = before.replace(tzinfo=UTC)
        self.before = before
        if [bool(self.conversations), bool(self.users), before is not None].count(True) != 1:
            raise ConfigurationError(
                "expected one of: a conversation, a user, a time", path="erase"
            )

    def __repr__(self) -> str:
        return f"<Erasure conversations={len(self.conversations)} users={len(self.users)} before={self.before}>"

    @classmethod
    def of(cls, fields: object, salt: str | None = None) -> Erasure:
        """Build the erasure that a request or a call asks for: `conversation`, `user` or `before`.

        The first two are text or a list of texts.

        Raises `ConfigurationError` with the field, its value's kind and what is expected.
        """
        if (
            not isinstance(fields, Mapping)
            or not fields
            or not {*fields} <= {"conversation", "user", "before"}
        ):
            raise ConfigurationError(
                'expected {"conversation": ID}, {"user": ID} or {"before": TIME}'
            )
        conversations, users = (_texts(fields, name) for name in ("conversation", "user"))
        before = fields.get("before")
        moment = before if before is None or isinstance(before, datetime) else moment_of(before)
        return cls(conversations=conversations, users=users, before=moment, salts=(salt,))

    @property
    def before_ns(self) -> int | None:
        return None if self.before is None else int(self.before.timestamp() * 1e9)

    @property
    def ids(self) -> frozenset[str]:
        return self.users | self.conversations

    def is_before(self, moment_ns: int | None) -> bool:
        """Tell whether a moment is before `before`. An unknown moment counts as earlier."""
        return self.before_ns is not None and (moment_ns or 0) < self.before_ns

    def concerns(self, aggregated: AggregatedEvaluationResult) -> bool:
        """Tell whether a stored result has what is to be erased.

        The conversations of a user are noted.
        """
        if aggregated.metadata == ERASED:
            return False
        if self.before is not None:
            return self.is_before(aggregated.ended_ns or aggregated.timestamp * 1_000_000)
        values: list[Any] = [aggregated, *_inputs(aggregated.input_snapshot)]
        conversations = _conversations_of(values) - {None}
        is_theirs = any(value.user_id in self.users for value in values)
        if is_theirs and any(result.evaluator_kind != _HUMAN for result in aggregated.results):
            # A redacted id may be shared with other users.
            self.conversations |= {id for id in conversations if _REDACTED.search(id) is None}
        return is_theirs or not self.conversations.isdisjoint(conversations)

    def concerns_input(self, value: EvaluationInput, ended_ns: int | None) -> bool:
        """Tell whether an answer that waits for its evaluation has what is to be erased."""
        parts = _inputs(value)
        if self.is_before(ended_ns):
            return True
        if any(part.user_id in self.users for part in parts):
            return True
        return not self.conversations.isdisjoint(_conversations_of(parts))

    def is_mentioned(self, value: object) -> bool:
        """Tell whether one of the ids is in the value, at any depth, or in JSON text within it."""
        if isinstance(value, str):
            return value in self.ids or any(needle in value for needle in self._quoted())
        if isinstance(value, Mapping):
            return any(map(self.is_mentioned, value.values()))
        return isinstance(value, list | tuple) and any(map(self.is_mentioned, value))

    def needles(self) -> list[bytes]:
        """Return what a stored line or row contains if it has one of the ids.

        They are written as JSON.
        """
        return [to_json(id)[1:-1] for id in self.ids]

    def user_needles(self) -> list[bytes]:
        return [to_json(id)[1:-1] for id in self.users]

    def _quoted(self) -> list[str]:
        return [to_json(id).decode() for id in self.ids]


class ErasedPlace(NamedTuple):
    """What was removed from one place, or with a dry run would be.

    Attributes:
        place: The file, the address, or what of the process it is.
        removed: Results, answers or conversations whose content was removed.
        unreadable: Lines or rows that cannot be read, and so were removed as a whole.
        problem: What was not done, and what to do about it.
        is_out_of_reach: Nothing of it can be erased from here.
    """

    place: str
    removed: int = 0
    unreadable: int = 0
    problem: str = ""
    is_out_of_reach: bool = False


def moment_of(text: Any) -> datetime:
    """Read a date or a time in ISO 8601. Raises `ConfigurationError`."""
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"expected a date or a time such as 2026-05-01 or 2026-05-01T12:00+02:00, found {type(text).__name__}",
            path="before",
        ) from None


def without_person(aggregated: AggregatedEvaluationResult) -> AggregatedEvaluationResult:
    """Return the result without content, without ids that lead to the answer, and without tags."""
    fields = AggregatedEvaluationResult.model_fields
    changes: dict[str, Any] = {name: fields[name].default for name in fields if name not in _KEPT}
    results = tuple(map(_result_without_person, aggregated.results))
    return copy_with(aggregated, {**changes, "metadata": ERASED, "results": results})


def _result_without_person(result: EvaluationResult) -> EvaluationResult:
    fields = EvaluationResult.model_fields
    changes: dict[str, Any] = {
        name: fields[name].default for name in fields if name not in _KEPT_OF_RESULT
    }
    for name in _WORDS:
        value = getattr(result, name)
        if isinstance(value, str) and not is_category(value):
            changes[name] = OTHER
    return without_content(copy_with(result, changes))


def _inputs(value: EvaluationInput | None) -> list[EvaluationInput]:
    return [] if value is None else [value, *(value.conversation or ())]


def _conversations_of(values: Iterable[Any]) -> set[Any]:
    """Return the ids of conversations and sessions, and None if an answer has none of one kind."""
    ids: set[Any] = set()
    for value in values:
        ids.add(value.conversation_id)
        ids.add(value.session_id)
    return ids


def _texts(fields: Mapping[str, Any], name: str) -> list[str]:
    value = fields.get(name)
    texts: Iterable[Any]
    if isinstance(value, list | tuple | set | frozenset):
        texts = value
    elif value is None:
        texts = []
    else:
        texts = [value]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise ConfigurationError(f"expected text, found {type(value).__name__}", path=name)
    return list(texts)
