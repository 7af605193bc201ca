"""The file with the reference distributions of scores.

It is read at start, and written when a distribution is complete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agenteval_otel.engine.capabilities.judge_health.scores import BINS, Counts
from agenteval_otel.errors import ConfigurationError

Key = tuple[str, str, str | None]
"""Criterion, model of the judge, version of the evaluator."""
_NAMES: Final = ("criterion", "judge", "evaluator")
_FIELD: Final = "judge_health.reference"


def read_references(path: Path | None) -> dict[Key, Counts]:
    """Return the references of a file, or none if it does not exist yet.

    Raises `ConfigurationError` if it cannot be read or is another file.
    """
    if path is None or not path.exists():
        return {}
    try:
        rows = json.loads(path.read_text("utf-8"))["criteria"]
        return {(row["criterion"], row["judge"], row["evaluator"]): _counts(row) for row in rows}
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}", path=_FIELD) from None
    except (ValueError, KeyError, TypeError):
        raise ConfigurationError(
            f"{path}: no file of references. Name another one, or delete it", path=_FIELD
        ) from None


def write_references(path: Path, references: Mapping[Key, Counts]) -> None:
    """Write them beside those that another process wrote meanwhile. Never writes half a file."""
    every = read_references(path) | dict(references)
    rows = [dict(zip(_NAMES, key, strict=True)) | counts._asdict() for key, counts in every.items()]
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.write_text(json.dumps({"criteria": rows}, indent=1), "utf-8")
    new.replace(path)


def _counts(row: Mapping[str, Any]) -> Counts:
    weights = tuple(map(float, row["weights"]))
    if len(weights) != BINS or min(weights) < 0 or not sum(weights) > 0:
        raise ValueError("no distribution")
    return Counts(weights, float(row["effective"]))
