"""What the forms of the label page do: labels are recorded, taken back and read from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from email.message import Message
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, Final

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.places import Place
from agenteval_otel.storage.rows import Label
from agenteval_otel.ui.label_page import MOST_CRITERIA
from agenteval_otel.ui.labels import label_of_person, record, withdrawal_of

_MAX_COMMENT: Final = 4_096
_VERDICTS: Final = {"pass": True, "fail": False}


def verdicts_in(form: Mapping[str, str]) -> dict[str, bool]:
    """Return the verdicts of a form by their criteria: one, or those of a numbered list.

    Raises `ConfigurationError` if a verdict is neither pass nor fail.
    """
    verdicts: dict[str, bool] = {}
    endings = ["", *(f"_{number}" for number in range(MOST_CRITERIA))]
    for ending in endings:
        word = form.get(f"verdict{ending}")
        if word is None:
            continue
        if word not in _VERDICTS:
            raise ConfigurationError("expected pass or fail", path="verdict")
        verdicts[form.get(f"criterion{ending}", "")] = _VERDICTS[word]
    return verdicts


def record_verdicts(
    key: str,
    evaluation: AggregatedEvaluationResult,
    verdicts: Mapping[str, bool],
    before: Mapping[str, bool | None],
    *,
    comment: str,
    name: str,
) -> bool:
    """Record the verdicts that differ from the person's own before. A comment is with the first one.

    Return False if one was not stored.
    """
    comment = comment[:_MAX_COMMENT]
    changed = {
        criterion: passed
        for criterion, passed in verdicts.items()
        if before.get(criterion) != passed
    }
    if comment and not changed:
        changed = dict(list(verdicts.items())[:1])
    is_stored = True
    for criterion, passed in changed.items():
        # One behind the other, because an undo takes back the last one.
        label = label_of_person(
            key, evaluation, criterion, passed=passed, comment=comment, name=name
        )
        is_stored = record(label) and is_stored
        comment = ""
    return is_stored


def take_back(
    labels: Sequence[Label], label_id: str, person: str | None, name: str, place: Place
) -> bool:
    """Take back a label of the person that counts. Return False if that was not stored.

    Nothing is done if it does not count any more: a form may be sent twice.
    """
    for label in labels:
        key = label.evaluation_id
        if label.label_id != label_id or label.person != person or key is None:
            continue
        evaluation = place.find_evaluations([key]).get(key)
        if evaluation is not None:
            passed = bool(label.passed)
            same = label_of_person(key, evaluation, label.criterion, passed=passed, name=name)
            return record(withdrawal_of(same))
    return True


def own_verdicts(labels: Sequence[Label], key: str, person: str | None) -> dict[str, bool | None]:
    """Return the verdicts of a person on an answer that count, by their criteria."""
    return {
        label.criterion: label.passed
        for label in labels
        if label.evaluation_id == key and label.person == person
    }


def fields_of_upload(content_type: str, body: bytes) -> dict[str, bytes]:
    """Return the fields of a form with a file, by their names. Raises `ConfigurationError`."""
    head = f"content-type: {content_type}\r\n\r\n".encode("utf-8", "replace")
    message: Any = BytesParser(policy=HTTP).parsebytes(head + body)
    if not message.is_multipart():
        raise ConfigurationError("expected a form with a file")
    fields: dict[str, bytes] = {}
    for part in message.iter_parts():
        name = _name_of_part(part)
        if name:
            fields[name] = part.get_payload(decode=True) or b""
    return fields


def _name_of_part(part: Message) -> str:
    name = part.get_param("name", header="content-disposition")
    return name if isinstance(name, str) else ""
