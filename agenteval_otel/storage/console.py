"""ConsoleStorageProvider: a line per result for people who try things out."""

from __future__ import annotations

import sys
from typing import Any

from pydantic import Field

from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
from agenteval_otel.runtime.masking import printable
from agenteval_otel.storage.base import EvaluationStorageProvider


class ConsoleStorageProvider(EvaluationStorageProvider, type="console"):
    """Writes ``agent  overall 0.83  tone pass  length fail (too_long)`` for each result.

    Attributes:
        stream: Where to. The present standard error when left out, so that the host's output stays
            its own.
    """

    stream: Any = Field(default=None, exclude=True, repr=False)

    async def save_result(self, aggregated: AggregatedEvaluationResult) -> None:
        overall = "-" if aggregated.overall_score is None else f"{aggregated.overall_score:.2f}"
        parts = [
            f"{aggregated.agent or 'evaluation'}",
            f"overall {overall}",
            *map(_shown, aggregated.results),
        ]
        # Control characters never reach a terminal, whatever a category or an agent is called.
        print(printable("  ".join(parts)), file=self.stream or sys.stderr)


def _shown(result: EvaluationResult) -> str:
    if result.status == "failed":
        return f"{result.criterion_name} failed ({result.error_type})"
    if result.status == "skipped":
        return f"{result.criterion_name} skipped"
    score = f"{result.score:.2f}" if isinstance(result.score, float) else result.score
    reason = f" ({result.reason_code})" if result.reason_code else ""
    verdict = score if result.label is None else result.label
    return f"{result.criterion_name} {verdict}{reason}"
