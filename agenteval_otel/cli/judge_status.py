"""``agenteval-otel judge status``: what judge health knows of the judges of running processes.

It is read from the metrics of these processes.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from agenteval_otel import semconv as names
from agenteval_otel.cli.counts import is_of, samples_of, text_from
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.offline.reports.figures import DASH, count_of, percent
from agenteval_otel.runtime.masking import printable
from agenteval_otel.runtime.text import aligned
from agenteval_otel.semconv import AGREEMENTS

DESCRIPTION = (
    "Show for each judged criterion whether its judge is still trusted, and how often each judge refuses. "
    "Also shows how far the judge agrees with known answers, with itself and with people, and whether its scores drift "
    "or follow length. "
    "With several processes, the worst value is shown. "
    "Exit code 0: every judge is trusted. Exit code 1: at least one is not. Exit code 2: the source cannot be read, or "
    "no judge is watched."
)
_UNREADABLE = ("malformed_answer", "empty_answer", "truncated")
_NOT_ASKED = ("cached", "budget", "budget_exhausted", "cancelled", "breaker_open")
_HEADINGS = ("criterion", "judge", "trusted", *AGREEMENTS, "drift", "length")
_NONE = (
    "no judge is watched there: these metrics come with the first judged answers, then every 60 s "
    "(OTEL_METRIC_EXPORT_INTERVAL). Is judge_health.enabled?"
)


@dataclass
class _Judged:
    """Holds the figures of a criterion and its judge. With several processes, they are the worst."""

    agreement: dict[str, float] = field(default_factory=dict)
    distrusted_by: set[str] = field(default_factory=set)
    drift: float | None = None
    length: float | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="source",
        metavar="SOURCE",
        required=True,
        help="a page with the metrics of the processes: an address such as http://127.0.0.1:8889/metrics (the "
        "Collector's), a file, or - for standard input",
    )


def run(arguments: argparse.Namespace) -> int:
    judged, calls, changes = _read(text_from(arguments.source))
    if not judged and not calls:
        raise ConfigurationError(_NONE, path="--from")
    rows = [_HEADINGS, *(_row(*key, of_key) for key, of_key in sorted(judged.items()))]
    lines = aligned(rows) if judged else []
    lines += ["", *(_calls(model, calls[model], changes[model]) for model in sorted(calls))]
    print("\n".join(map(printable, lines)).strip())
    return 1 if any(of_key.distrusted_by for of_key in judged.values()) else 0


def _read(
    text: str,
) -> tuple[dict[tuple[str, str], _Judged], dict[str, Counter[str]], Counter[str]]:
    """Return what the page says by criterion and judge, and what it says by judge.

    What it says by judge are calls by outcome, and changes of the model.
    """
    judged: dict[tuple[str, str], _Judged] = defaultdict(_Judged)
    calls: dict[str, Counter[str]] = defaultdict(Counter)
    changes: Counter[str] = Counter()
    for name, labels, value in samples_of(text, least=-math.inf):

        def label(attribute: str, labels: dict[str, str] = labels) -> str:
            return labels.get(attribute.replace(".", "_"), "")

        model = label(names.JUDGE_MODEL)
        check = label(names.JUDGE_CHECK)
        key = label(names.EVALUATION_NAME), model
        if is_of(name, names.METRIC_JUDGE_AGREEMENT):
            agreement = judged[key].agreement
            agreement[check] = min(value, agreement.get(check, value))
        elif is_of(name, names.METRIC_JUDGE_UNTRUSTED) and value > 0:
            judged[key].distrusted_by.add(check)
        elif is_of(name, names.METRIC_JUDGE_DRIFT):
            judged[key].drift = _worse(judged[key].drift, value)
        elif is_of(name, names.METRIC_JUDGE_LENGTH_CORRELATION):
            judged[key].length = _worse(judged[key].length, value, by=abs)
        elif is_of(name, names.METRIC_JUDGE_CALLS):
            calls[model][label(names.OUTCOME)] += int(value)
        elif is_of(name, names.METRIC_JUDGE_CHANGES):
            changes[model] += int(value)
    return judged, calls, changes


def _worse(known: float | None, value: float, *, by: Callable[[float], float] = float) -> float:
    return value if known is None else max(known, value, key=by)


def _row(criterion: str, judge: str, judged: _Judged) -> tuple[str, ...]:
    trusted = f"no: {', '.join(sorted(judged.distrusted_by))}" if judged.distrusted_by else "yes"
    agreements: list[str] = []
    for check in AGREEMENTS:
        share = judged.agreement.get(check)
        agreements.append(DASH if share is None else percent(share))
    drift = DASH if judged.drift is None else f"{judged.drift:.2f}"
    length = DASH if judged.length is None else f"{judged.length:+.2f}"
    return (criterion, judge, trusted, *agreements, drift, length)


def _calls(model: str, outcomes: Counter[str], changes: int) -> str:
    sent = sum(count for outcome, count in outcomes.items() if outcome not in _NOT_ASKED)
    unreadable = sum(outcomes[outcome] for outcome in _UNREADABLE)
    words = [count_of(sent, "call")]
    if sent:
        words.append(f"{percent(outcomes['refusal'] / sent, 1)} refused")
        words.append(f"{percent(unreadable / sent, 1)} unreadable")
    words.append(f"{count_of(changes, 'change')} of the model")
    return f"{model}: {', '.join(words)}"
