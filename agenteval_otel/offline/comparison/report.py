"""A comparison as a table for terminals, Markdown for a pull request, and JSON."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agenteval_otel.models.intervals import Estimate
from agenteval_otel.offline.comparison.answers import Answer
from agenteval_otel.offline.comparison.compare import (
    Changed,
    Comparison,
    CriterionComparison,
    Regression,
)
from agenteval_otel.offline.reports.figures import (
    BAD,
    DASH,
    GOOD,
    count_of,
    interval_notes,
    markdown_text,
    with_interval,
)
from agenteval_otel.offline.reports.table import console_for, fitting, grid_of, named_grid
from agenteval_otel.offline.reports.totals import estimate_json
from agenteval_otel.runtime.masking import printable
from agenteval_otel.runtime.text import brief

_WIDE = 100
_TEXT_CHARS = 300
_LISTED = 5
_SIGNS = {"drop": BAD, "gain": GOOD}


def text_of(
    comparison: Comparison, *, width: int | None = None, colour: bool = False, answers: bool = False
) -> str:
    """Return the table as text. `answers` adds the stored texts of the worst regressions."""
    file = io.StringIO()
    console = console_for(file, width=width, colour=colour)
    for part in tables_of(comparison, width=console.width, answers=answers):
        console.print(part)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def tables_of(
    comparison: Comparison, *, width: int, answers: bool = False
) -> Iterator[RenderableType]:
    yield Text(_outcome(comparison), style="bold red" if comparison.exit_code else "bold")
    count_a = count_of(comparison.count_a, "answer")
    count_b = count_of(comparison.count_b, "answer")
    yield ""
    yield grid_of(
        [("A", f"{comparison.name_a}, {count_a}"), ("B", f"{comparison.name_b}, {count_b}")]
    )
    yield ""
    yield fitting(_table(comparison, width >= _WIDE))
    notes = [[note] for note in comparison.notes]
    changes = [[line] for line in _changes(comparison)]
    worst = [_worst_row(item) for item in comparison.regressions[:_LISTED]]
    heading = "Worst" if comparison.changed else "Lowest in B"
    for name, rows in (("Note", notes), ("Changed", changes), (heading, worst)):
        if rows:
            yield ""
            yield named_grid(name, rows)
    if answers:
        for item in comparison.regressions[:_LISTED]:
            yield ""
            yield grid_of(_contents(item))
    yield ""
    yield Text(_legend(comparison, with_size=width >= _WIDE), style="dim")


def _worst_row(item: Regression) -> list[str]:
    row = [item.criterion, _change(item), item.b.place]
    if item.b.trace_id:
        row.append(item.b.trace_id)
    return row


def _table(comparison: Comparison, is_wide: bool) -> Table:
    table = Table(
        box=None, padding=(0, 2 if is_wide else 1, 0, 0), pad_edge=False, header_style="dim"
    )
    shown = ["criterion", "A", "B", "B - A (95 %)", "p", "outcome"]
    if is_wide:
        shown += ["detectable", "needed"]
    for name in shown:
        table.add_column(name, overflow="fold", no_wrap=name not in ("criterion", "outcome"))
    for item in comparison.criteria:
        style = {"drop": "bold red", "gain": "green"}.get(item.outcome, "")
        sign = _SIGNS.get(item.outcome, "")
        figure_of = _estimate if is_wide else _plain
        cells: list[str | Text] = [
            Text(printable(item.name), style=style),
            figure_of(item.a, comparison),
            figure_of(item.b, comparison),
            _difference(item),
            _p(item.corrected),
            Text(f"{sign} {item.outcome}".strip(), style=style),
        ]
        if is_wide:
            cells.append(f"{item.detectable:.2f}")
            cells.append(f"{item.needed:,}" if item.needed else DASH)
        table.add_row(*cells)
    return table


def markdown_of(comparison: Comparison, *, answers: bool = False) -> str:
    """Return Markdown.

    It has the texts of answers only with `answers`, since a pull request has other readers.
    """
    return "\n".join(_markdown(comparison, answers)) + "\n"


def _markdown(comparison: Comparison, answers: bool) -> Iterator[str]:
    sign = {0: "✅", 1: "❌", 2: "⚠️"}[comparison.exit_code]
    yield f"### {sign} {_outcome(comparison)}"
    a = f"{markdown_text(comparison.name_a)} ({count_of(comparison.count_a, 'answer')})"
    b = f"{markdown_text(comparison.name_b)} ({count_of(comparison.count_b, 'answer')})"
    yield from (
        "",
        f"A: {a}. B: {b}.",
        "",
        "| criterion | A | B | B - A (95 %) | p | outcome | detectable |",
        "|---|---|---|---|--:|---|--:|",
    )
    for item in comparison.criteria:
        outcome_sign = {"drop": "❌ ", "gain": "✅ "}.get(item.outcome, "")
        cells = [
            markdown_text(item.name),
            _plain(item.a, comparison),
            _plain(item.b, comparison),
            _difference(item),
            _p(item.corrected),
            f"{outcome_sign}{item.outcome}",
            f"{item.detectable:.2f}",
        ]
        yield f"| {' | '.join(cells)} |"
    for heading, lines in (
        ("Notes", comparison.notes),
        ("Changed inputs", list(_changes(comparison))),
    ):
        if lines:
            yield from ("", f"**{heading}**", "", *(f"- {markdown_text(line)}" for line in lines))
    if comparison.regressions:
        heading = "Worst regressions" if comparison.changed else "Lowest answers of B"
        yield from (
            "",
            f"<details><summary>{heading}</summary>",
            "",
            "| criterion | score | answer |",
            "|---|---|---|",
        )
        for worst in comparison.regressions:
            yield f"| {markdown_text(worst.criterion)} | {_change(worst)} | {markdown_text(worst.b.place)} |"
        if answers:
            yield from _markdown_contents(comparison)
        yield from ("", "</details>")
    yield from ("", f"<sub>{_legend(comparison, with_size=True)}</sub>")


def _markdown_contents(comparison: Comparison) -> Iterator[str]:
    for item in comparison.regressions:
        yield ""
        for name, text in _contents(item):
            yield f"- {name or 'answer'}: {markdown_text(text)}"


def json_of(comparison: Comparison, *, answers: bool = False) -> dict[str, Any]:
    """Return JSON values. `answers` adds the stored texts of the regressions."""
    regressions: list[dict[str, Any]] = []
    for item in comparison.regressions:
        regressions.append(
            {
                "criterion": item.criterion,
                "before": item.before,
                "after": item.after,
                "a": _answer_json(item.a, answers),
                "b": _answer_json(item.b, answers),
            }
        )
    balance: dict[str, Any] | None = None
    if comparison.balance is not None:
        balance = {**comparison.balance._asdict(), "mismatch": comparison.balance.mismatch}
    return {
        "a": {"name": comparison.name_a, "answers": comparison.count_a},
        "b": {"name": comparison.name_b, "answers": comparison.count_b},
        "exit_code": comparison.exit_code,
        "options": comparison.options._asdict(),
        "criteria": [_criterion_json(item) for item in comparison.criteria],
        "regressions": regressions,
        "notes": list(comparison.notes),
        "balance": balance,
        "changed": _changed_json(comparison.changed),
    }


def _criterion_json(item: CriterionComparison) -> dict[str, Any]:
    return {
        "name": item.name,
        "outcome": item.outcome,
        "a": estimate_json(item.a),
        "b": estimate_json(item.b),
        "difference": item.difference.value,
        "low": item.difference.low,
        "high": item.difference.high,
        "p": item.p,
        "p_corrected": item.corrected,
        "detectable": item.detectable,
        "more_answers": item.needed,
        "pairs": item.pairs,
        "lower": item.lower,
        "higher": item.higher,
    }


def _changed_json(changed: Changed | None) -> dict[str, Any] | None:
    if changed is None:
        return None
    return {
        "only_a": [answer.place for answer in changed.only_a],
        "only_b": [answer.place for answer in changed.only_b],
        "matched": changed.matched,
        "answers": changed.answers,
    }


def _outcome(comparison: Comparison) -> str:
    if comparison.exit_code == 2:
        return "No comparison: see the notes"
    drops = comparison.drops
    gains = [item for item in comparison.criteria if item.outcome == "gain"]
    parts: list[str] = []
    for items, word in ((drops, "significant drop"), (gains, "gain")):
        if items:
            names = ", ".join(printable(item.name) for item in items)
            parts.append(f"{count_of(len(items), word)} ({names})")
    return f"Comparison: {' and '.join(parts) or 'no significant drop'}"


def _estimate(estimate: Estimate, comparison: Comparison) -> str:
    return with_interval(estimate, rate=comparison.options.pass_rate)


def _plain(estimate: Estimate, comparison: Comparison) -> str:
    return _estimate(estimate, comparison).partition(" (")[0]


def _difference(item: CriterionComparison) -> str:
    value, low, high, _ = item.difference
    return f"{value:+.3f} ({low:+.3f} to {high:+.3f})"


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "<0.001"


def _change(item: Regression) -> str:
    return f"{item.after:.2f}" if item.before is None else f"{item.before:.2f} to {item.after:.2f}"


def _changes(comparison: Comparison) -> Iterator[str]:
    changed = comparison.changed
    if changed is None:
        return
    words = f"{count_of(changed.matched, 'input')} on both sides"
    if changed.answers is None:
        yield words
    else:
        yield f"{words}, of which {changed.answers:,} have another answer"
    for item in comparison.criteria:
        if item.lower or item.higher:
            yield f"{item.name}: {item.lower:,} score lower, {item.higher:,} higher"
    for answers, name in ((changed.only_a, comparison.name_a), (changed.only_b, comparison.name_b)):
        if answers:
            places = ", ".join(_places(answers))
            yield f"only in {name}: {count_of(len(answers), 'input')}, such as {places}"


def _places(answers: Iterable[Answer]) -> list[str]:
    return [answer.place for answer in answers][:_LISTED]


def _contents(item: Regression) -> Iterator[tuple[str, str]]:
    before = None if item.a is None else item.a.content
    after = item.b.content
    yield ("criterion", f"{item.criterion} {_change(item)}, {item.b.place}")
    if after is None:
        yield ("", "the answer is not stored")
        return
    yield ("question", brief(after[0], _TEXT_CHARS))
    if before is not None:
        yield ("A", brief(before[1], _TEXT_CHARS))
    yield ("B", brief(after[1], _TEXT_CHARS))


def _answer_json(answer: Answer | None, with_content: bool) -> dict[str, Any] | None:
    if answer is None:
        return None
    known = {"place": answer.place, "trace_id": answer.trace_id}
    if with_content and answer.content:
        known["prompt"], known["response"] = answer.content
    return known


def _legend(comparison: Comparison, *, with_size: bool) -> str:
    options = comparison.options
    changed = comparison.changed
    how = "paired by input" if changed else "as two samples"
    if options.sequential:
        test = "at any number of looks"
    elif changed:
        test = "for one look: signs are permuted"
    else:
        test = "for one look: labels are permuted"
    claims = sum(item.outcome != "evaluator changed" for item in comparison.criteria)
    figures = "Pass rates" if options.pass_rate else "Mean scores"
    text = (
        f"{figures} weighted by 1 / probability, {how}, by conversation. "
        f"p holds {test}, and is corrected for {count_of(claims, 'criterion', 'criteria')} (Holm). A "
        "drop or a gain is significant at p <= 0.05. Intervals are not corrected."
    )
    if not with_size:
        return text
    sides: list[Estimate] = []
    for item in comparison.criteria:
        sides += [item.a, item.b]
    notes = "".join(f" {word}: {meaning}." for word, meaning in interval_notes(sides))
    return (
        f"{text} detectable: the drop that is detected with a power of 80 %. needed: how many more answers a side "
        f"detect one of {options.detect:g}.{notes}"
    )
