"""The file of results: each input's aggregated result as one JSON line, in the order of the dataset."""

from __future__ import annotations

import json
import math
from typing import IO, Any

from agenteval_otel.capture.text import plain
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.storage.base import without_objects

__all__ = ["ResultsFile"]

_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


class ResultsFile:
    """Writes results to an open file.

    Args:
        file: Takes UTF-8 text.
        shape: ``full``: all that is known, as storage providers write it; ``original``: the JSON shape of the original
            framework, in which an errored result carries the filler score of its evaluator.
    """

    def __init__(self, file: IO[str], *, shape: str = "full") -> None:
        self._file, self._shape = file, shape

    def add(self, aggregated: AggregatedEvaluationResult) -> None:
        """Write one line."""
        line = _original(aggregated) if self._shape == "original" else _full(aggregated)
        self._file.write(line.translate(_LINE_BREAKS) + "\n")


def _full(aggregated: AggregatedEvaluationResult) -> str:
    try:
        return aggregated.model_dump_json(by_alias=True, exclude_none=True)
    except ValueError:  # an evaluator's metadata may hold what JSON has no form for
        return without_objects(aggregated).model_dump_json(by_alias=True, exclude_none=True)


def _original(aggregated: AggregatedEvaluationResult) -> str:
    shape = aggregated.original_json()
    try:
        return json.dumps(shape, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        return json.dumps(_without_nan(plain(shape)), ensure_ascii=False)


def _without_nan(value: Any) -> Any:
    """What is no finite number as null, as the originals' language writes it."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
