"""``agenteval-otel explain``: why there is no score.

Shares of the outcomes first, then losses and failures in full.
"""

from __future__ import annotations

import argparse
import shutil
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import chain

from agenteval_otel import semconv as names
from agenteval_otel.cli.counts import OF_CAPTURE, Counts, capture_reasons, counts_from, descending
from agenteval_otel.cli.figures import number_between
from agenteval_otel.components.explained import suggestion
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.offline.reports.figures import count_of, percent
from agenteval_otel.runtime.masking import printable
from agenteval_otel.runtime.nearest import nearest
from agenteval_otel.telemetry import reference
from agenteval_otel.telemetry.reference import (
    ERROR_TYPES,
    FAILURES,
    LOG_LINES,
    OUTCOMES,
    Explanation,
)

DESCRIPTION = (
    "Explain what became of calls: outcomes, failed parts, error types of evaluators, log lines. Without arguments, "
    "print every outcome in one sentence. With --from, print the counts of a process with their shares, likely causes "
    "and remedies. With --alerts, print how long a fall of quality takes to its page, by the objectives of a settings "
    "file. Exit code 0: success. Exit code 2: an unknown name, or a source that cannot be read."
)
_REACH = {
    "delivered": "delivered by our own exporters. flush() returns whether the receiver accepted them",
    "handed_over": "handed over to the application's provider. Whether its exporter delivers them is unknown",
}
_NOT_KNOWN = "Not known to this version."
_NEAREST = 3
_LONGEST = 60  # of a word that is unknown
_WIDEST = max(map(len, OUTCOMES))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="explain in full: an outcome (not_sampled), a part (storage:json_file), an error.type (timeout), the "
        "event of a log line (no_telemetry), a criterion of the settings or the catalogue (Relevance): whether its "
        "judge was measured against people",
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="SOURCE",
        help="counts to explain: a file, - for standard input, or the address of a Prometheus page such as "
        "http://127.0.0.1:8889/metrics (the Collector's). A file contains such a page, the result of accounting() as "
        'JSON or as printed, or {"outcomes": ..., "failures": ..., "results": ...}',
    )
    parser.add_argument(
        "--settings", metavar="FILE", help="the settings file (default: AGENTEVAL_SETTINGS)"
    )
    alerts = parser.add_argument_group("how long until the page")
    alerts.add_argument(
        "--alerts", action="store_true", help="how long until the page, for each objective"
    )
    numbers = number_between(1e-6, 1e6, "a number above 0")
    for name, default, meaning in (
        (
            "--per-minute",
            60,
            "verdicts of a criterion a minute, that is evaluated answers, in all processes",
        ),
        ("--processes", 1, "processes that share them"),
        (
            "--export-interval",
            60,
            "seconds between two exports of metrics (OTEL_METRIC_EXPORT_INTERVAL / 1000)",
        ),
    ):
        kind = int if name == "--processes" else numbers
        alerts.add_argument(
            name, type=kind, default=default, metavar="N", help=f"{meaning} (default: %(default)s)"
        )


def run(arguments: argparse.Namespace) -> int:
    if arguments.alerts:
        print("\n".join(map(printable, _time_to_page(arguments))))
        return 0
    counts = None if arguments.source is None else counts_from(arguments.source)
    if arguments.names:
        lines = _joined([_named(name, counts, arguments.settings) for name in arguments.names])
    else:
        lines = _overview() if counts is None else report(counts)
    print("\n".join(map(printable, lines)))
    return 0


def _time_to_page(arguments: argparse.Namespace) -> list[str]:
    from agenteval_otel.cli.provision import plan_of
    from agenteval_otel.provisioning.delays import notes_of, table_of

    processes = max(1, arguments.processes)
    plan = plan_of(arguments.settings, None)
    table = table_of(
        plan,
        verdicts_per_s=arguments.per_minute / 60.0,
        processes=processes,
        export_s=arguments.export_interval,
    )
    notes: list[str] = []
    for note in notes_of(plan):
        notes += ["", *_wrapped(f"{note}.", first="", rest="  ")]
    if len(table) == 1:
        return [
            "No criterion has an objective below 1 that can be missed: none raises a page.",
            *notes,
        ]
    shared = f", shared by {processes} processes" if processes > 1 else ""
    return [
        "Time from a drop of the pass rate to the page: the median, and in parentheses the 90th percentile.",
        f"{arguments.per_minute:g} verdicts a minute{shared}, metrics exported every {arguments.export_interval:g} s.",
        "",
        *table,
        *notes,
    ]


def _overview() -> list[str]:
    lines = [
        "Counts of a process: agenteval-otel explain --from http://127.0.0.1:8889/metrics",
        "A word in full:      agenteval-otel explain NAME ...",
        "",
        "Every call of a monitored handler ends in exactly one outcome. It ...",
        "",
    ]
    for name, explanation in OUTCOMES.items():
        lines += _wrapped(
            explanation.means, first=f"  {name:<{_WIDEST}}  ", rest=" " * (_WIDEST + 4)
        )
    lines += [
        "",
        *_listed("Parts that may fail", FAILURES),
        *_listed("Error types", ERROR_TYPES),
        *_listed("Log lines", LOG_LINES),
    ]
    return lines


def _listed(title: str, words: Iterable[str]) -> list[str]:
    return _wrapped(f"{title}: {', '.join(words)}", first="", rest="    ")


def _named(name: str, counts: Counts | None, settings: str | None) -> list[str]:
    explanation = _explanation_of(name)
    if explanation is None:
        from agenteval_otel.cli.calibrate.criterion import criterion_in_words, known_criteria

        about = criterion_in_words(name, settings)
        if about is not None:
            lines = [name]
            for line in about:
                lines += _wrapped(line, first="  ", rest="  ")
            return lines
        choices = (*OUTCOMES, *FAILURES, *ERROR_TYPES, *LOG_LINES, *known_criteria(settings))
        raise ConfigurationError(_unknown(name, choices), path=printable(name[:_LONGEST]))
    is_outcome = name in OUTCOMES
    title = name
    if is_outcome and counts is not None:
        title += f": {_of_calls(name, counts.totals)}"
    return [title, *_in_full(explanation, is_outcome=is_outcome)]


def _explanation_of(name: str) -> Explanation | None:
    known = OUTCOMES.get(name) or ERROR_TYPES.get(name) or reference.explanation_of_failure(name)
    if known is None and name in LOG_LINES:
        return reference.explanation_of_log_line(LOG_LINES[name])
    return known


def _unknown(name: str, choices: Sequence[str]) -> str:
    """Return only the nearest words: there are over a hundred."""
    near = get_close_matches(name[:_LONGEST], dict.fromkeys(choices), n=_NEAREST, cutoff=0.5)
    meant = nearest(name, choices)
    others = ", ".join(word for word in near if word != meant)
    also = f". Near: {others}" if others else ""
    return f"unknown{suggestion(name, choices)}{also}. `agenteval-otel explain` lists all words"


def report(counts: Counts) -> list[str]:
    """Return the outcomes with their shares, then every loss and failure."""
    totals = counts.totals
    calls = totals.total()
    losses = _losses(counts)
    if not calls:
        no_calls = [reference.NO_CALLS.means, *_causes_and_remedies(reference.NO_CALLS)]
        return _joined([no_calls, *losses])
    outcomes = [f"{count_of(calls, 'call')} of monitored handlers", ""]
    for name, count in descending(totals):
        share = percent(count / calls, 1)
        outcomes.append(f"  {name:<{_WIDEST}} {count:>10,} {share:>9}")
    if not losses:
        verdict = "Nothing was lost. This source does not contain failures: add failures and results to the outcomes."
        if counts.failures or counts.results:
            verdict = "Nothing was lost, and nothing failed."
        # harmless, but possibly the reason for a missing score
        most = max(totals, key=lambda name: totals[name])
        in_full = _in_full(OUTCOMES[most], is_outcome=True)
        rest = [[verdict], [f"{most}: {_of_calls(most, totals)}", *in_full]]
    else:
        rest = losses
    return _joined([outcomes, _by_agent(counts), _state(counts), *rest])


def _losses(counts: Counts) -> list[list[str]]:
    totals = counts.totals
    blocks = []
    for name, _ in descending(totals):
        outcome = OUTCOMES.get(name)
        if outcome is None or not outcome.harmless:
            in_full = _in_full(outcome, is_outcome=True) if outcome else [f"  {_NOT_KNOWN}"]
            blocks.append([f"{name}: {_of_calls(name, totals)}", *in_full])
    reasons = capture_reasons(counts)
    if reasons:
        lines = [_wrapped(line, first="  ", rest="    ") for line in reasons]
        blocks.append(["Answers that were not understood, by reason", *chain(*lines)])
    for part, count in descending(counts.failures):
        if part.startswith(OF_CAPTURE):
            continue
        failure = reference.explanation_of_failure(part)
        blocks.append([f"{part} failed {_times(count)}", *(_in_full(failure) if failure else [])])
    if counts.not_understood:
        blocks.append(_not_understood(counts.not_understood))
    for (signal, reason), count in descending(counts.lost):
        title = f"{count:,} {signal} lost in export: {reason}"
        means = reference.LOST_REASONS.get(reason, _NOT_KNOWN)
        blocks.append([title, *_wrapped(means, first="  ", rest="  ")])
    for (criterion, error_type), count in descending(counts.errors):
        who = criterion or "an evaluator"
        title = f"{who} failed {_times(count)} with {error_type or 'an error'}"
        blocks.append([title, *_in_full(reference.explanation_of_error(error_type))])
    failed = counts.results["failed"]
    if failed:
        hint = "By criterion and error.type: agenteval_evaluation_errors_total, or the events of severity WARN."
        blocks.append([f"Failed results: {failed:,}", f"  {hint}"])
    return blocks


def _not_understood(by_scope: Counter[str]) -> list[str]:
    scopes = ", ".join(f"{scope} ({count:,})" for scope, count in descending(by_scope))
    title = f"{by_scope.total():,} spans not understood, by their scope: {scopes}"
    return [*_wrapped(title, first="", rest="  "), *_in_full(reference.NOT_UNDERSTOOD)]


def _by_agent(counts: Counts) -> list[str]:
    if len(counts.outcomes) < 2:
        return []
    lines = ["By agent"]
    for agent, cell in sorted(counts.outcomes.items(), key=lambda item: -item[1].total()):
        calls = cell.total()
        shares = ", ".join(
            f"{percent(count / calls, 1)} {name}" for name, count in descending(cell)
        )
        text = f"{agent or '(unnamed)'}: {count_of(calls, 'call')}: {shares or 'none'}"
        lines += _wrapped(text, first="  ", rest="    ")
    return lines


def _state(counts: Counts) -> list[str]:
    lines = []
    if counts.results:
        results = [f"{count:,} {name}" for name, count in counts.results.items()]
        lines.append(f"Results: {', '.join(results)}")
    if counts.spans:
        spans = [f"{count:,} {name}" for name, count in descending(counts.spans)]
        lines.append(f"Spans: {', '.join(spans)}")
    if counts.as_json:
        evaluated = counts.totals[names.EVALUATED]
        share = percent(counts.as_json / max(1, evaluated), 1)
        text = (
            f"Judged as JSON: {counts.as_json:,} of {evaluated:,} evaluated answers, {share}: data of the handler's "
            "own without a text in a field of a known name. If users see a text, return it, or give it with capture="
        )
        lines += _wrapped(text, first="", rest="  ")
    total = counts.units.total()
    if total:
        without = total - counts.units["conversation"] - counts.units["session"]
        share = percent(without / total, 1)
        text = (
            f"Without the id of a conversation or session: {share} of {total:,} emitted answers. "
            "Without it objectives and intervals take turns of one conversation, which are alike, for independent"
        )
        lines += _wrapped(text, first="", rest="  ")
    if counts.last_success is not None:
        ago_s = max(0.0, time.time() - counts.last_success)
        lines.append(f"Last emitted result: {ago_s:,.0f} s ago")
    for reach, signals in sorted(counts.reach.items()):
        means = _REACH.get(reach, reach)
        shown = ", ".join(sorted(signals)).capitalize()
        lines += _wrapped(f"{shown}: {means}", first="", rest="  ")
    return lines


def _in_full(explanation: Explanation, *, is_outcome: bool = False) -> list[str]:
    means = f"The call {explanation.means}." if is_outcome else explanation.means
    return [*_wrapped(means, first="  ", rest="  "), *_causes_and_remedies(explanation)]


def _causes_and_remedies(explanation: Explanation) -> list[str]:
    lines = []
    for title, entries in (("Causes", explanation.causes), ("To do", explanation.remedies)):
        for index, entry in enumerate(entries):
            label = title if index == 0 else ""
            lines += _wrapped(entry, first=f"  {label:<7} - ", rest=" " * 12)
    return lines


def _of_calls(outcome: str, totals: Counter[str]) -> str:
    count = totals[outcome]
    calls = totals.total()
    share = percent(count / max(1, calls), 1)
    return f"{count:,} of {calls:,} calls, {share}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _wrapped(text: str, *, first: str, rest: str) -> list[str]:
    width = min(100, max(60, shutil.get_terminal_size((100, 24)).columns))
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _joined(blocks: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of the blocks, with an empty line between two blocks."""
    lines: list[str] = []
    for block in blocks:
        if block:
            lines += ["", *block]
    return lines[1:]
