"""Reports: the contract, and those for programs (JSON) and pull requests (Markdown)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import IO, Any

from agenteval_otel.cli.evaluate.dataset import Row
from agenteval_otel.cli.evaluate.targets import Summary
from agenteval_otel.cli.evaluate.totals import CriterionTotals
from agenteval_otel.cli.figures import count_of, duration_of, frequencies, with_interval
from agenteval_otel.models import AggregatedEvaluationResult
from agenteval_otel.runtime.masking import printable
from agenteval_otel.scoring.intervals import Estimate

__all__ = ["JsonReport", "MarkdownReport", "Report", "json_for_terminals"]


class Report:
    """Writes results to an open file; it neither opens nor closes it."""

    def __init__(self, file: IO[str]) -> None:
        self.file = file

    def add(self, row: Row, aggregated: AggregatedEvaluationResult) -> None:
        """Add the results of one input, in the order of the dataset. Most reports only need the totals."""
        return

    def finish(self, summary: Summary) -> None:
        """Write the report. Raises `OSError` when it cannot be written."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what the report keeps, whether it was written or not."""
        return


def json_for_terminals(value: Any) -> str:
    """Indented JSON. Control characters are escaped: names come from files, and must not steer a terminal."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


class JsonReport(Report):
    """One JSON object; absent values (a mean without scores) are null."""

    def finish(self, summary: Summary) -> None:
        totals = summary.totals
        report = {
            "sources": list(summary.sources),
            "inputs": totals.inputs,
            "inputs_with_failures": totals.broken,
            "duration_s": round(summary.duration_s, 3),
            "overall_score": _estimate(totals.overall),
            "criteria": [_criterion(criterion) for criterion in totals.criteria],
            "fail_under": [limit._asdict() for limit in summary.limits],
            "missed": [target._asdict() for target in summary.missed],
            "lowest": [low._asdict() for low in totals.lowest],
            **({"judges": totals.judges.as_json()} if totals.judges else {}),
        }
        self.file.write(json_for_terminals(report) + "\n")


def _criterion(criterion: CriterionTotals) -> dict[str, Any]:
    return {
        "name": criterion.name,
        "mean": _estimate(criterion.mean),
        "pass_rate": _estimate(criterion.pass_rate),
        "scored": criterion.scored,
        "skipped": criterion.skipped,
        "failed": criterion.failed,
        "objective": criterion.objective,
        "objective_met": criterion.objective_met,
        "labels": dict(criterion.labels),
        "skip_reasons": dict(criterion.skips),
        "error_types": dict(criterion.errors),
    }


def _estimate(estimate: Estimate | None) -> dict[str, float] | None:
    """The mean, its 95 % interval, and the number of scores."""
    if estimate is None:
        return None
    return {"mean": estimate.mean, "low": estimate.low, "high": estimate.high, "scores": estimate.scores}


_NONE = "\u2013"
# In code, an @ mentions nobody and an address is no link.
_SPECIAL = re.compile(r"[\\`*_\[\]<>|#~@&]|://|www\.")


class MarkdownReport(Report):
    """A heading with the outcome, a table, the missed targets and the lowest inputs. Contains no text of an answer."""

    def finish(self, summary: Summary) -> None:
        self.file.write("\n".join(_lines(summary)) + "\n")


def _lines(summary: Summary) -> Iterator[str]:
    totals, missed, has_targets = summary.totals, summary.missed, summary.has_targets
    outcome = f"{count_of(len(missed), 'target')} missed" if missed else "all targets met"
    yield f"### {'❌ ' if missed else '✅ ' if has_targets else ''}Evaluation: " + (
        outcome if has_targets else "no targets set"
    )
    yield ""
    sources = ", ".join(map(_text, summary.sources))
    yield f"{count_of(totals.inputs, 'input')} from {sources} in {duration_of(summary.duration_s)}."
    yield from ("", "| criterion | mean (95 %) | pass rate (95 %) | scored | skipped | failed | target |")
    yield "|---|---|---|--:|--:|--:|---|"
    for item in totals.criteria:
        mean, rate = item.mean, item.pass_rate
        cells = [
            _text(item.name), _NONE if mean is None else with_interval(mean),
            _NONE if rate is None else with_interval(rate, rate=True),
            f"{item.scored:,}", f"{item.skipped:,}", f"{item.failed:,}", _targets(summary, item),
        ]  # fmt: skip
        yield f"| {' | '.join(cells)} |"
    overall = totals.overall
    shown, scored = (_NONE, 0) if overall is None else (with_interval(overall), overall.scores)
    yield f"| **overall score** | {shown} | | {scored:,} | | | {_targets(summary, None)} |"
    for title, lines in (
        ("Missed", list(map(str, missed))),
        ("Failed results, which have no score",
         [f"{item.name}: {frequencies(item.errors)}" for item in totals.criteria if item.failed]),
        ("Skips", [f"{item.name}: {frequencies(item.skips)}" for item in totals.criteria if item.skipped]),
    ):  # fmt: skip
        if lines:
            yield from ("", f"**{title}**", "", *(f"- {_text(line)}" for line in lines))
    if totals.lowest:
        yield from ("", "<details><summary>Lowest scores</summary>", "", "| input | overall score | not passed |")
        yield "|---|--:|---|"
        for low in totals.lowest:
            yield f"| {_text(low.place)} | {low.overall_score:.2f} | {_text(', '.join(low.criteria))} |"
        yield from ("", "</details>")


def _targets(summary: Summary, criterion: CriterionTotals | None) -> str:
    return ", ".join(f"{words} {'✅' if met else '❌'}" for words, met in summary.targets_of(criterion))


def _text(text: str) -> str:
    """The text, as code where Markdown would interpret it."""
    shown = printable(text)
    return f"`{shown.replace('`', chr(39)).replace('|', chr(92) + '|')}`" if _SPECIAL.search(shown) else shown
