"""Tells in words that nothing of what arrives is evaluated, and why."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from agenteval_otel.capture.reasons import REASONS, Explained
from agenteval_otel.runtime.log import log
from agenteval_otel.semconv import (
    ALREADY_MONITORED,
    CAPTURE_FAILED,
    CAPTURE_REASONS,
    DISABLED,
    SERVICE_NAME,
    SPANS_NOT_UNDERSTOOD,
    SPANS_OURS,
    SPANS_WITHOUT_ANSWER,
)
from agenteval_otel.telemetry import Accounting

_FIRST_LOOK_S: Final = 0.25
_LOOK_S: Final = 5.0
# With the quiet time of a trace this is less than ten seconds after the first span.
_FIRST_WAIT_S: Final = 2.0
# Once answers were evaluated, a minute of none but dropped ones is told.
_WAIT_S: Final = 60.0
_MAX_NAMES: Final = 3
_NOT_EVALUATED: Final = (ALREADY_MONITORED, CAPTURE_FAILED, DISABLED)
_FIXES: Final = {
    ALREADY_MONITORED: "nothing to do if that is meant. Else switch evaluation off in the application: no @monitor, "
    "middleware or span processor there, and without the extra instrumentor, or "
    "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=agenteval",
    DISABLED: "evaluation is switched off: look at enabled in the settings, and at AGENTEVAL_ENABLED",
    SPANS_NOT_UNDERSTOOD: "let the agent's library send spans of the GenAI conventions: the documentation's "
    "page on spans lists what is understood, and the variables for it",
    SPANS_WITHOUT_ANSWER: "let the spans of the agent and of its model calls pass too: tools alone show no answer",
}


class Reason(NamedTuple):
    """Why nothing is evaluated: an outcome of answers or spans, a sentence, and what to do."""

    outcome: str
    problem: str
    fix: str


class _Counts(NamedTuple):
    evaluated: int
    dropped: Mapping[str, int]
    spans: Mapping[str, int]


class Silence:
    """Watches what the sidecar counts, on one thread.

    Each reason is logged once, until an answer is taken again.

    Attributes:
        reason: Why nothing is evaluated at present. None where something is, or nothing arrives.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.reason: Reason | None = None
        self._before = _Counts(0, {}, {})  # when an answer was evaluated last
        self._has_evaluated = False
        # The first look that found answers or spans, and none of them evaluated.
        self._since: float | None = None
        self._looked_at = float("-inf")

    def look(self, accounting: Accounting) -> None:
        """Look at the counts, unless that was just done."""
        now = self._clock()
        look_s = _LOOK_S if self._has_evaluated else _FIRST_LOOK_S
        if now - self._looked_at < look_s:
            return
        self._looked_at = now
        counts = _counts_of(accounting)
        if counts.evaluated > self._before.evaluated:
            self._before = counts
            self._has_evaluated = True
            self._since = None
            self.reason = None
            return
        outcome = self._most_dropped(counts)
        if outcome is None:
            return
        if self._since is None:
            self._since = now
        wait_s = _WAIT_S if self._has_evaluated else _FIRST_WAIT_S
        if now - self._since < wait_s:
            return
        if self.reason is not None and self.reason.outcome == outcome:
            return
        problem = _in_words(outcome, counts, self._before, accounting)
        self.reason = Reason(outcome, problem, _fix_of(outcome, accounting))
        accounting.fail("nothing_evaluated")
        log.warning(
            "nothing_evaluated", part=outcome, problem=self.reason.problem, fix=self.reason.fix
        )

    def _most_dropped(self, counts: _Counts) -> str | None:
        """Return what became of most answers since an answer was evaluated.

        If there was no answer at all, return what became of spans.
        """
        answers = {
            name: count - self._before.dropped.get(name, 0)
            for name, count in counts.dropped.items()
        }
        if any(answers.values()):
            return max(answers, key=lambda name: answers[name])
        had_answers = self._has_evaluated or any(counts.dropped.values())
        if had_answers:  # beside answers, spans that are not understood are nothing to tell of
            return None
        if not any(counts.spans.values()):
            return None
        if counts.spans[SPANS_NOT_UNDERSTOOD]:
            return SPANS_NOT_UNDERSTOOD
        return SPANS_WITHOUT_ANSWER


def _counts_of(accounting: Accounting) -> _Counts:
    outcomes = accounting.outcomes()
    evaluated = sum(count for name, count in outcomes.items() if name not in _NOT_EVALUATED)
    dropped = {name: outcomes[name] for name in _NOT_EVALUATED}
    counted = accounting.spans()
    kinds = (SPANS_NOT_UNDERSTOOD, SPANS_WITHOUT_ANSWER, SPANS_OURS)
    spans = {kind: counted.get(kind, 0) for kind in kinds}
    return _Counts(evaluated, dropped, spans)


def _in_words(outcome: str, counts: _Counts, before: _Counts, accounting: Accounting) -> str:
    if outcome in counts.dropped:
        answers = counts.dropped[outcome] - before.dropped.get(outcome, 0)
        came = f"{answers:,} answers came, none was evaluated here: "
        if outcome == ALREADY_MONITORED:
            return f"{came}they are evaluated already, in {_services_of(accounting)}"
        if outcome == CAPTURE_FAILED:
            return f"{came}they are {_capture_reason(accounting).means}"
        return f"{came}evaluation is switched off"
    came = f"{sum(counts.spans.values()):,} spans came, and no answer in them: "
    if outcome == SPANS_WITHOUT_ANSWER:
        return f"{came}none is of an agent or a model call"
    scopes = sorted(accounting.not_understood.items(), key=lambda item: -item[1])[:_MAX_NAMES]
    named = ", ".join(f"{scope} ({count:,})" for scope, count in scopes)
    return f"{came}{counts.spans[outcome]:,} are not understood, of {named}"


def _fix_of(outcome: str, accounting: Accounting) -> str:
    if outcome != CAPTURE_FAILED:
        return _FIXES[outcome]
    return f"{_capture_reason(accounting).fix}: the log line part_failed has details in problem"


def _capture_reason(accounting: Accounting) -> Explained:
    """Return the reason why most answers were not understood, in words."""
    counts = {reason: accounting.failures.get(f"capture:{reason}", 0) for reason in CAPTURE_REASONS}
    most = max(CAPTURE_REASONS, key=lambda reason: counts[reason])
    # Without a counted reason it is the usual one: spans without text.
    return REASONS[most if counts[most] else "no_content"]


def _services_of(accounting: Accounting) -> str:
    """Return the services whose answers are evaluated already, if they are named."""
    services = {
        dict(origin).get(SERVICE_NAME, "")
        for (_, origin), counts in accounting.by_origin().items()
        if counts[ALREADY_MONITORED]
    }
    named = sorted(services - {""})
    if not named:
        return "the application"
    more = f" and {len(named) - _MAX_NAMES} others" if len(named) > _MAX_NAMES else ""
    return ", ".join(named[:_MAX_NAMES]) + more
