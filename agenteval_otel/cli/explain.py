"""``agenteval-otel explain``: why there is no score. Shares of the outcomes first, then losses and failures in full.

`counts` reads the counts; the explanations are those of `telemetry.reference`.
"""

from __future__ import annotations

import argparse
import shutil
import textwrap
import time
from collections.abc import Mapping, Sequence
from typing import TypeVar

from agenteval_otel.cli.counts import Counts, counts_from
from agenteval_otel.cli.figures import percent
from agenteval_otel.components.explained import known_choices
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.runtime.masking import printable
from agenteval_otel.telemetry.reference import (
    ERROR_TYPES,
    FAILURES,
    LOST_REASONS,
    NO_CALLS,
    OUTCOMES,
    Explanation,
    explanation_of_error,
    explanation_of_failure,
)

DESCRIPTION = (
    "Explain what became of calls: outcomes, failed parts, error types of evaluators. Without arguments, print every "
    "outcome in one sentence; with --from, the counts of a process with their shares, likely causes and remedies. "
    "Exit codes: 0 success; 2 an unknown name, or a source that cannot be read."
)
Key = TypeVar("Key")
_MAX_AGENTS = 20
_REACH = {
    "delivered": "delivered by our own exporters; flush() returns whether the receiver accepted them",
    "handed_over": "handed over to the application's provider; whether its exporter delivers them is unknown",
}
_CROWDED = 0.8
_WIDEST = max(map(len, OUTCOMES))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    parser.add_argument(
        "names", nargs="*", metavar="NAME",
        help="explain in full: an outcome (not_sampled), a part (storage:json_file), an error.type (timeout)",
    )  # fmt: skip
    parser.add_argument(
        "--from", dest="source", metavar="SOURCE",
        help="counts to explain: a file, - for standard input, or the address of a Prometheus page such as "
        "http://127.0.0.1:8889/metrics (the Collector's). A file contains such a page, the result of accounting() as "
        'JSON or as printed, or {"outcomes": ..., "failures": ..., "results": ...}',
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Explain; gives the exit code."""
    counts = None if arguments.source is None else counts_from(arguments.source)
    if arguments.names:
        lines = full(arguments.names, counts)
    elif counts is None:
        lines = overview()
    else:
        lines = report(counts)
    print("\n".join(map(printable, lines)))
    return 0


def overview() -> list[str]:
    """Every outcome in one sentence."""
    lines = ["Every call of a monitored handler ends in exactly one outcome. It ...", ""]
    for name, explanation in OUTCOMES.items():
        lines += _wrapped(explanation.means, first=f"  {name:<{_WIDEST}}  ", rest=" " * (_WIDEST + 4))
    lines += ["", f"Parts that may fail: {', '.join(FAILURES)}", f"Error types: {', '.join(ERROR_TYPES)}", ""]
    return [*lines, "In full: agenteval-otel explain NAME ...", "From a process: agenteval-otel explain --from SOURCE"]


def full(names: Sequence[str], counts: Counts | None) -> list[str]:
    """The names explained in full, with their share of the calls where there are counts."""
    totals = counts.totals if counts is not None else {}
    blocks = []
    for name in names:
        explanation = OUTCOMES.get(name) or ERROR_TYPES.get(name) or explanation_of_failure(name)
        if explanation is None:
            raise ConfigurationError(
                f"unknown{known_choices(name, (*OUTCOMES, *FAILURES, *ERROR_TYPES))}", path=name[:64]
            )
        share = f": {_of_calls(totals.get(name, 0), totals)}" if counts is not None and name in OUTCOMES else ""
        blocks.append([name + share, *_in_full(explanation, is_outcome=name in OUTCOMES)])
    return _joined(blocks)


def report(counts: Counts) -> list[str]:
    """The outcomes with their shares, then every loss and failure."""
    totals = counts.totals
    calls = sum(totals.values())
    if not calls:
        return [NO_CALLS.means, *_causes_and_remedies(NO_CALLS)]
    table = [f"  {name:<{_WIDEST}} {count:>10,} {percent(count / calls, 1):>9}" for name, count in _descending(totals)]
    blocks = [[f"{calls:,} calls of monitored handlers", "", *table], _by_agent(counts), _state(counts)]
    lost = [name for name, _ in _descending(totals) if not (name in OUTCOMES and OUTCOMES[name].harmless)]
    for name in lost:
        title = f"{name}: {_of_calls(totals[name], totals)}"
        outcome = OUTCOMES.get(name)
        blocks.append([title, *(_in_full(outcome, is_outcome=True) if outcome else ["  Not known to this version."])])
    for part, count in _descending(counts.failures):
        failure = explanation_of_failure(part)
        blocks.append([f"{part} failed {_times(count)}", *(_in_full(failure) if failure else [])])
    for (signal, reason), count in _descending(counts.lost):
        means = LOST_REASONS.get(reason, "Not known to this version.")
        blocks.append([f"{count:,} {signal} lost in export: {reason}", *_wrapped(means, first="  ", rest="  ")])
    for (criterion, error_type), count in _descending(counts.errors):
        title = f"{criterion or 'an evaluator'} failed {_times(count)} with {error_type or 'an error'}"
        blocks.append([title, *_in_full(explanation_of_error(error_type))])
    failed = counts.results.get("failed", 0)
    if failed:
        hint = "By criterion and error.type: agenteval_evaluation_errors_total, or the events of severity WARN."
        blocks.append([f"Failed results: {failed:,}", f"  {hint}"])
    if not (lost or failed or any(any(part.values()) for part in (counts.failures, counts.errors, counts.lost))):
        unknown = "Nothing was lost. This source does not contain failures: add failures and results to the outcomes."
        complete = counts.failures or counts.results
        blocks.append(["Nothing was lost, and nothing failed." if complete else unknown])
        most = max(totals, key=lambda name: totals[name])  # harmless, but possibly the reason for a missing score
        blocks.append([f"{most}: {_of_calls(totals[most], totals)}", *_in_full(OUTCOMES[most], is_outcome=True)])
    return _joined([block for block in blocks if block])


def _by_agent(counts: Counts) -> list[str]:
    if len(counts.outcomes) < 2:
        return []
    lines = ["By agent"]
    by_calls = sorted(counts.outcomes.items(), key=lambda item: -sum(item[1].values()))
    for agent, cell in by_calls[:_MAX_AGENTS]:
        calls = sum(cell.values())
        shares = ", ".join(f"{percent(count / calls, 1)} {name}" for name, count in _descending(cell))
        lines += _wrapped(f"{agent or '(unnamed)'}: {calls:,} calls: {shares or 'none'}", first="  ", rest="    ")
    if len(by_calls) > _MAX_AGENTS:
        lines.append(f"  and {len(by_calls) - _MAX_AGENTS} more")
    return lines


def _state(counts: Counts) -> list[str]:
    """Results, the queue and the last delivery."""
    lines = []
    if counts.results:
        lines.append("Results: " + ", ".join(f"{count:,} {name}" for name, count in counts.results.items()))
    queue = counts.queue
    if "size" in queue and "bytes" in queue and queue.get("max_bytes"):
        crowded = ": nearly full, calls will be dropped" if queue["bytes"] >= _CROWDED * queue["max_bytes"] else ""
        mib, max_mib = (queue[name] / 1024 / 1024 for name in ("bytes", "max_bytes"))
        lines.append(f"Queue: {queue['size']:,} calls, {mib:,.1f} of {max_mib:,.1f} MiB{crowded}")
    if counts.last_success is not None:
        lines.append(f"Last emitted result: {max(0.0, time.time() - counts.last_success):,.0f} s ago")
    for reach, signals in sorted(counts.reach.items()):
        means = _REACH.get(reach, reach)
        lines += _wrapped(f"{', '.join(sorted(signals)).capitalize()}: {means}", first="", rest="  ")
    return lines


def _in_full(explanation: Explanation, *, is_outcome: bool = False) -> list[str]:
    means = f"The call {explanation.means}." if is_outcome else explanation.means
    return [*_wrapped(means, first="  ", rest="  "), *_causes_and_remedies(explanation)]


def _causes_and_remedies(explanation: Explanation) -> list[str]:
    lines = []
    for title, entries in (("Causes", explanation.causes), ("To do", explanation.remedies)):
        for index, entry in enumerate(entries):
            lines += _wrapped(entry, first=f"  {title if not index else '':<7} - ", rest=" " * 12)
    return lines


def _descending(counts: Mapping[Key, int]) -> list[tuple[Key, int]]:
    """The counts above 0, the largest first."""
    return sorted(((key, count) for key, count in counts.items() if count), key=lambda item: -item[1])


def _of_calls(count: int, totals: dict[str, int]) -> str:
    calls = sum(totals.values())
    return f"{count:,} of {calls:,} calls, {percent(count / calls if calls else 0, 1)}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _wrapped(text: str, *, first: str, rest: str) -> list[str]:
    width = min(100, max(60, shutil.get_terminal_size((100, 24)).columns))
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def _joined(blocks: Sequence[Sequence[str]]) -> list[str]:
    lines: list[str] = []
    for block in blocks:
        lines += [*([""] if lines else []), *block]
    return lines
