"""The summary as JSON, for programs: figures with their intervals, counts by word, targets."""

from __future__ import annotations

import json
from typing import Any

from agenteval_otel.cli.evaluate.reports.base import Report, Summary
from agenteval_otel.cli.evaluate.tallies import Tally
from agenteval_otel.intervals import Estimate

__all__ = ["JsonReport"]


class JsonReport(Report):
    """One JSON object; what is not there (a mean without scores) is null."""

    def finish(self, summary: Summary) -> None:
        tallies = summary.tallies
        shown = json.dumps(
            {
                "sources": list(summary.sources),
                "inputs": tallies.inputs,
                "inputs_with_failures": tallies.broken,
                "duration_s": round(summary.duration_s, 3),
                "overall_score": _estimate(tallies.overall),
                "criteria": [_criterion(tally) for tally in tallies.criteria],
                "fail_under": [limit._asdict() for limit in summary.limits],
                "missed": [one._asdict() for one in summary.missed],
                "lowest": [low._asdict() for low in tallies.lowest],
                **({"judges": tallies.judged.as_json()} if tallies.judged else {}),
            },
            indent=2, ensure_ascii=False,
        )  # fmt: skip
        # What would steer a terminal is escaped: names and words come from the dataset.
        self.file.write(
            "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in shown)
        )
        self.file.write("\n")


def _criterion(tally: Tally) -> dict[str, Any]:
    return {
        "name": tally.name,
        "mean": _estimate(tally.mean),
        "pass_rate": _estimate(tally.pass_rate),
        "scored": tally.scored,
        "skipped": tally.skipped,
        "failed": tally.failed,
        "objective": tally.objective,
        "objective_met": tally.objective_met,
        "labels": dict(tally.labels),
        "skip_reasons": dict(tally.skips),
        "error_types": dict(tally.errors),
    }


def _estimate(estimate: Estimate | None) -> dict[str, float] | None:
    """The mean, its 95 % interval, and of how many scores it is made."""
    if estimate is None:
        return None
    return {"mean": estimate.mean, "low": estimate.low, "high": estimate.high, "scores": estimate.scores}
