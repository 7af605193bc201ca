"""The summary as Markdown, for the comment of a pull request: no text of an input or an answer is in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agenteval_otel.cli.evaluate.reports.base import Report, Summary
from agenteval_otel.cli.evaluate.tallies import Tally
from agenteval_otel.cli.evaluate.words import duration_of, plural, share_of, value_of, words_of
from agenteval_otel.masking import printable

__all__ = ["MarkdownReport"]

_NONE = "\u2013"
# In code an @ calls nobody, and an address is no link.
_SPECIAL = re.compile(r"[\\`*_\[\]<>|#~@&]|://|www\.")


class MarkdownReport(Report):
    """A heading that tells the outcome, a table of the criteria, what was missed, and the lowest inputs folded in."""

    def finish(self, summary: Summary) -> None:
        self.file.write("\n".join(_lines(summary)) + "\n")


def _lines(summary: Summary) -> Iterator[str]:
    tallies, missed = summary.tallies, summary.missed
    asked = summary.limits or any(tally.objective is not None for tally in tallies.criteria)
    outcome = f"{plural(len(missed), 'target')} missed" if missed else "all targets met" if asked else "no targets set"
    yield f"### {'❌ ' if missed else '✅ ' if asked else ''}Evaluation: {outcome}"
    yield ""
    sources = ", ".join(map(_text, summary.sources))
    yield f"{plural(tallies.inputs, 'input')} from {sources} in {duration_of(summary.duration_s)}."
    yield ""
    yield "| criterion | mean (95 %) | pass rate (95 %) | scored | skipped | failed | target |"
    yield "|---|---|---|--:|--:|--:|---|"
    for tally in tallies.criteria:
        yield _row(summary, tally)
    mean = _NONE if tallies.overall is None else value_of(tallies.overall)
    scored = 0 if tallies.overall is None else tallies.overall.scores
    yield f"| **overall score** | {mean} | | {scored:,} | | | {_targets(summary, None)} |"
    for title, lines in (
        ("Missed", [_text(str(one)) for one in missed]),
        ("Failures, which count as no score", [_text(f"{one.name}: {words_of(one.errors)}")
                                               for one in tallies.criteria if one.failed]),
        ("Skips", [_text(f"{one.name}: {words_of(one.skips)}") for one in tallies.criteria if one.skipped]),
    ):  # fmt: skip
        if lines:
            yield from ("", f"**{title}**", "", *(f"- {line}" for line in lines))
    if tallies.lowest:
        yield from ("", "<details><summary>Lowest scores</summary>", "", "| input | overall score | not passed |")
        yield "|---|--:|---|"
        for low in tallies.lowest:
            yield f"| {_text(low.place)} | {low.overall_score:.2f} | {_text(', '.join(low.criteria))} |"
        yield from ("", "</details>")


def _row(summary: Summary, tally: Tally) -> str:
    mean, rate = tally.mean, tally.pass_rate
    cells = [
        _text(tally.name), _NONE if mean is None else value_of(mean), _NONE if rate is None else share_of(rate),
        f"{tally.scored:,}", f"{tally.skipped:,}", f"{tally.failed:,}", _targets(summary, tally),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _targets(summary: Summary, tally: Tally | None) -> str:
    return ", ".join(f"{words} {'✅' if met else '❌'}" for words, met in summary.targets_of(tally))


def _text(text: str) -> str:
    """The text; as code where Markdown, or the service that shows it, would read more than text in it."""
    shown = printable(text)
    return f"`{shown.replace('`', chr(39)).replace('|', chr(92) + '|')}`" if _SPECIAL.search(shown) else shown
