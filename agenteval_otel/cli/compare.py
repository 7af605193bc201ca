"""``agenteval-otel compare``: tell whether one set of evaluated answers is worse than another.

The exit code tells it too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from agenteval_otel.cli.figures import json_for_terminals, number_between, whole_number
from agenteval_otel.cli.file_kinds import check_kinds
from agenteval_otel.errors import ConfigurationError, EvaluationError
from agenteval_otel.evaluators.judges.adapter import as_judge
from agenteval_otel.evaluators.judges.cache import CacheSettings
from agenteval_otel.models.judge_calls import observed_by
from agenteval_otel.offline.comparison import (
    Answer,
    ComparedSource,
    Comparison,
    Filters,
    Options,
    arms_of,
    compare,
    shadow_sides,
)
from agenteval_otel.offline.comparison.answers import label_of
from agenteval_otel.offline.comparison.pairwise import QUESTION, notes_of, with_preferences
from agenteval_otel.offline.reports.totals import JudgeTotals
from agenteval_otel.offline.run import Progress
from agenteval_otel.runtime.masking import printable
from agenteval_otel.storage.rows import LABELS

DESCRIPTION = (
    "Compare two sets of evaluated answers, A before and B after. Prints for each criterion the difference of the "
    "means with its interval, whether it is more than chance, and which difference so many answers would have shown. A "
    "source is a file of results (evaluate --results, JSON lines storage), an SQLite file of the storage, or sql:URL "
    "of a database. ?NAME=VALUE&... after it chooses answers by "
    + ", ".join(LABELS)
    + ", tag.KEY, since and until. Equal inputs are "
    "compared in pairs, and live traffic as two samples, weighted by 1 / probability, with the answers of a "
    "conversation together."
)
_EXIT_CODES = (
    "Exit code 0: no significant drop. Exit code 1: a criterion has dropped significantly. Exit code 2: it could not "
    "be compared: a source that cannot be read, no criterion in common, other evaluators, arms out of balance. Exit "
    "code 130: interrupted."
)
_EXAMPLES = """
examples:
  agenteval-otel compare main.jsonl branch.jsonl --report markdown --output comment.md
      two runs of `evaluate --results` over one dataset, with a comment for the pull request
  agenteval-otel compare agenteval.db --by prompt_version
      the two versions of the prompt in the storage (--by prompt_version=3,4 names them)
  agenteval-otel compare 'agenteval.db?until=2026-11-01' 'agenteval.db?since=2026-11-01'
      before and after the first of November
  agenteval-otel compare sql:postgresql://db/agenteval --by arm --since 2026-11-01
      the arms of an experiment that runs: look as often as you like
  agenteval-otel compare main.jsonl branch.jsonl --pairwise anthropic:claude-haiku-4-5
      a judge's preference between the two answers to each input, beside the criteria
  agenteval-otel compare agenteval.db --shadow
      the evaluators that are tried beside the present ones, on the same answers
"""
_REPORTS = ("table", "markdown", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = textwrap.fill(DESCRIPTION, 78)
    parser.epilog = f"{textwrap.fill(_EXIT_CODES, 78)}\n{_EXAMPLES}"
    share = number_between(0.001, 0.999, "a number between 0.001 and 0.999")
    add = parser.add_argument
    add("a", metavar="A", help="the answers before, or those that --by or --shadow splits")
    add("b", metavar="B", nargs="?", help="the answers after")
    add(
        "--by",
        metavar="LABEL[=A,B]",
        help="split A by the values of a label, such as prompt_version, "
        "service_version, model or arm. Of two values the one that began earlier is A",
    )
    add(
        "--shadow",
        action="store_true",
        help="compare evaluators that are tried with the present ones",
    )
    add(
        "--since",
        metavar="TIME",
        help="only answers evaluated at this moment or later, in ISO 8601 (UTC without a zone)",
    )
    add("--until", metavar="TIME", help="only answers evaluated before it")
    add(
        "--pass-rate",
        action="store_true",
        help="compare the shares that pass instead of the mean scores",
    )
    add(
        "--pairs",
        action=argparse.BooleanOptionalAction,
        help="match equal inputs (default: where neither side is "
        "live traffic and at least half of the smaller one's inputs match)",
    )
    add(
        "--sequential",
        action=argparse.BooleanOptionalAction,
        help="figures that stay valid however often you check "
        "a running experiment (default: with --by arm)",
    )
    add(
        "--share",
        type=share,
        metavar="SHARE",
        help="the share of the experiment that is assigned to B, whose "
        "balance is checked (default: 0.5 with --by arm)",
    )
    add(
        "--detect",
        type=share,
        default=0.05,
        metavar="SIZE",
        help="report how many more answers are needed to detect this difference (default: %(default)s)",
    )
    add(
        "--pairwise",
        metavar="JUDGE",
        help="ask this judge (type:model, or type:model@address) which of the two "
        "answers to each input is better, in both orders, two calls a pair. It is compared as the criterion "
        "`preferred`",
    )
    add(
        "--question",
        default=QUESTION,
        metavar="TEXT",
        help="what --pairwise asks (default: which serves the person who asked better)",
    )
    add("--cache", metavar="FILE", help="keep the verdicts of --pairwise in this SQLite file")
    add(
        "--concurrency",
        type=whole_number,
        default=8,
        metavar="N",
        help="pairs judged at once (default: %(default)s)",
    )
    add("--report", choices=_REPORTS, default="table", help="default: %(default)s")
    add("--output", metavar="FILE", help="where to (default: standard output)")
    add(
        "--answers",
        action="store_true",
        help="show the questions and answers of the worst regressions, where stored",
    )


def run(arguments: argparse.Namespace) -> int:
    """Compare and print, and return the exit code."""
    label, values = _split(arguments)
    names, sides = _sides(arguments, label, values)
    is_experiment = label == "arm"
    notes: Sequence[str] = ()
    if arguments.pairwise is not None:
        sides, notes = _judged_in_pairs(arguments, sides)
    in_pairs = True if arguments.shadow or arguments.pairwise else arguments.pairs
    sequential = is_experiment if arguments.sequential is None else arguments.sequential
    default_share = 0.5 if is_experiment else None
    options = Options(
        pass_rate=arguments.pass_rate,
        detect=arguments.detect,
        same_evaluators=not arguments.shadow,
        pairs=in_pairs,
        sequential=sequential,
        share=arguments.share or default_share,
    )
    comparison = compare(*sides, options, names)
    comparison = comparison._replace(notes=(*notes, *comparison.notes))
    write(comparison, arguments.report, arguments.output, answers=arguments.answers)
    return comparison.exit_code


def _judged_in_pairs(
    arguments: argparse.Namespace, sides: tuple[Sequence[Answer], Sequence[Answer]]
) -> tuple[tuple[Sequence[Answer], Sequence[Answer]], Sequence[str]]:
    """Return the sides with the judge's preferences, and the notes on these."""
    for option, is_set in (
        ("pass-rate", arguments.pass_rate),
        ("shadow", arguments.shadow),
        ("no-pairs", arguments.pairs is False),
    ):
        if is_set:
            raise ConfigurationError(f"cannot be used with --{option}", path="--pairwise")
    judge = as_judge(arguments.pairwise, path="--pairwise")
    problem = judge.config_problem()
    if problem is not None:
        raise ConfigurationError(problem, path="--pairwise")
    if arguments.cache is not None:
        judge = judge.model_copy(update={"cache": CacheSettings(path=Path(arguments.cache))})
    judge.prepare()
    calls = JudgeTotals()
    judged_share = 0.0

    def on_pair(share: float) -> None:
        nonlocal judged_share
        judged_share = share
        progress.advance(0)

    progress = Progress(None, what="pairs judged", share=lambda: judged_share)
    with contextlib.closing(progress), observed_by(calls):
        judged, preferences = asyncio.run(
            with_preferences(
                sides,
                judge,
                question=arguments.question,
                concurrency=arguments.concurrency,
                on_pair=on_pair,
            )
        )
    print(printable(str(calls)), file=sys.stderr)
    return judged, notes_of(preferences, judge)


def write(
    comparison: Comparison, report: str, output: str | None, *, answers: bool = False
) -> None:
    """Write the comparison as a table, Markdown or JSON, to the file or to standard output."""
    from agenteval_otel.offline.comparison.report import json_of, markdown_of, tables_of
    from agenteval_otel.offline.reports.table import console_for

    with contextlib.ExitStack() as files:
        file = sys.stdout
        if output:
            file = files.enter_context(open(output, "w", encoding="utf-8"))
        if report == "markdown":
            file.write(markdown_of(comparison, answers=answers))
        elif report == "json":
            file.write(json_for_terminals(json_of(comparison, answers=answers)) + "\n")
        else:
            console = console_for(file)
            for part in tables_of(comparison, width=console.width, answers=answers):
                console.print(part)


def _split(arguments: argparse.Namespace) -> tuple[str | None, tuple[str, ...]]:
    chosen = [arguments.by is not None, arguments.shadow, arguments.b is not None]
    if sum(chosen) != 1:
        raise ConfigurationError("expected two sources, or one with either --by or --shadow")
    if arguments.by is None:
        return None, ()
    label, _, text = arguments.by.partition("=")
    values = tuple(filter(None, text.split(",")))
    if text and (len(values) != 2 or values[0] == values[1]):
        raise ConfigurationError(
            f"expected LABEL=A,B with two different values, found {arguments.by!r}", path="--by"
        )
    return label_of(label, "--by"), values


def _sides(
    arguments: argparse.Namespace, label: str | None, values: tuple[str, ...]
) -> tuple[tuple[str, str], tuple[Sequence[Answer], Sequence[Answer]]]:
    """Return the names and the answers of both sides."""
    times: list[tuple[str, str]] = []
    for name in ("since", "until"):
        text = getattr(arguments, name)
        if text is not None:
            times.append((name, text))
    filters = Filters.parse(times, "--since, --until")
    first = ComparedSource(arguments.a)
    check_kinds([first.location], "compare")
    if arguments.b is not None:
        second = ComparedSource(arguments.b)
        check_kinds([second.location], "compare")
        sides = (list(first.answers(filters)), list(second.answers(filters)))
        return (first.name, second.name), sides
    if label is not None:
        arms = arms_of(first.answers(filters), label, values)
        a, b = arms
        return (f"{label}={a}", f"{label}={b}"), (arms[a], arms[b])
    present, tried = shadow_sides(first.answers(filters))
    if not tried:
        raise EvaluationError(f"{first.name}: no evaluator is tried there (shadow: true)")
    return ("present", "tried"), (present, tried)
