"""Tables of questions."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from agenteval_otel.ground_truth import FileGroundTruthStore
from agenteval_otel.models import EvaluationInput

COLUMNS = ("UserPrompt", "ExpectedOutput", "Category", "Module")


def written(path: Path, rows: Iterable[tuple[str, ...]]) -> Path:
    """A CSV file of these rows, each filled up with empty cells."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows((*row, *[""] * (len(COLUMNS) - len(row))) for row in rows)
    return path


def later(path: Path) -> Path:
    """The same file with a time of change of its own: two writes may fall into one tick of the file
    system's clock.
    """
    result = path.stat()
    os.utime(path, ns=(result.st_atime_ns, result.st_mtime_ns + 1_000_000_000))
    return path


def ask(store: FileGroundTruthStore, prompt: str | None, **fields: object) -> object:
    """The answer to a prompt, or None."""
    result = store.find(EvaluationInput.model_validate({"prompt": prompt, **fields}))
    return None if result is None else result.answer


def pass_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Set the monotonic clock of this process forward."""
    now = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() + seconds)
