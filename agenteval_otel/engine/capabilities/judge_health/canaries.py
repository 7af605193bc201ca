"""Canaries: questions to judges whose answers are known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import ValidationError

from agenteval_otel.components.explained import explain_validation
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationInput, ScoreValue
from agenteval_otel.models.inputs import names_of

MAX_CANARIES: Final = 200
_MAX_BYTES: Final = 8 * 1024 * 1024


class Canary(NamedTuple):
    """Holds one input, and the known score of each criterion on that criterion's scale."""

    evaluation_input: EvaluationInput
    labels: Mapping[str, ScoreValue]


def read_canaries(path: Path) -> tuple[Canary, ...]:
    """Return the canaries of a JSONL file. Blank lines are left out.

    Raises:
        ConfigurationError: With the line: it cannot be read, is no JSON object, lacks ``labels`` or
            has wrong fields. Or the file is too large, or there are no canaries or more than 200.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        lines = content.decode("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigurationError(
            f"{path}: cannot be read: {reason}", path="judge_health.canaries"
        ) from None
    if len(content) > _MAX_BYTES:
        raise ConfigurationError(
            f"{path}: more than {_MAX_BYTES:,} bytes", path="judge_health.canaries"
        )
    canaries = tuple(
        _canary(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()
    )
    if not 0 < len(canaries) <= MAX_CANARIES:
        wrong = f"{path}: expected 1 to {MAX_CANARIES} lines, found {len(canaries)}: every round asks all of them"
        raise ConfigurationError(wrong, path="judge_health.canaries")
    return canaries


def _canary(line: str, place: str) -> Canary:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise ConfigurationError(f"{place}: not JSON", path="judge_health.canaries") from None
    labels = row.pop("labels", None) if isinstance(row, dict) else None
    if not isinstance(labels, dict) or not labels or not all(map(_is_score, labels.values())):
        wrong = f'{place}: expected "labels", the known score of each criterion such as {{"Politeness": true}}'
        raise ConfigurationError(wrong, path="judge_health.canaries")
    unknown = sorted(row.keys() - names_of(EvaluationInput))
    if unknown:
        raise ConfigurationError(
            f"{place}: unknown field {unknown[0][:64]!r}", path="judge_health.canaries"
        )
    try:
        return Canary(EvaluationInput.model_validate(row), labels)
    except ValidationError as error:
        failure = explain_validation(error, EvaluationInput)
        raise ConfigurationError(f"{place}: {failure}", path="judge_health.canaries") from None


def _is_score(value: object) -> bool:
    return isinstance(value, bool | int | float | str) and value == value
