"""Notices: what is sent to people, as values. They hold names and numbers, and never an answer's text."""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from agenteval_otel.engine.signals import StateChange
from agenteval_otel.models.value import copy_with
from agenteval_otel.runtime.masking import printable
from agenteval_otel.runtime.text import brief, sanitise
from agenteval_otel.semconv import CANARY, DRIFT, OTHER, PEOPLE, POSITION, REPEAT

MOST_SHOWN: Final = 40
"""Notices of one bulletin that are written out."""
_NAME_CHARS: Final = 80
_READ_CHARS: Final = 1_000
_DAY_S: Final = 86_400
# What mail programs and chats make a link or a mention of.
_LINKS: Final = re.compile(r"://|@|^www\.|\.[A-Za-z]{2,}(?:$|[/:?#])")
_OPENS: Final = {":": "[:]", ".": "[.]", "@": "[at]"}
_CHECKS: Final = {
    CANARY: "it gives the known answer to {value:.0%} of the canaries",
    REPEAT: "it agrees with itself on {value:.0%} of the repeats",
    POSITION: "it agrees with itself on {value:.0%} of the repeats in reverse order",
    PEOPLE: "it agrees with people on {value:.0%} of the answers",
    DRIFT: "its scores drifted (population stability index {value:.2f})",
}


class Notice(NamedTuple):
    """Tells one thing.

    Attributes:
        id: The same if the notice is sent again.
        kind: ``objective``, ``judge``, ``breaker``, ``evaluator``, ``summary`` or ``test``.
        state: ``breached`` and ``recovered`` of objectives, ``bad`` and ``well`` of the others,
            else the kind.
        title: In a few words.
        text: In sentences, on one or several lines.
        url: Of the answers behind it. Empty without `pages_url`.
        reminder: It was reported before, and lasts.
        facts: The same as numbers, in JSON's types.
    """

    id: str
    kind: str
    state: str
    title: str
    text: str
    at_ns: int
    url: str = ""
    reminder: bool = False
    facts: Mapping[str, Any] = {}


class Bulletin(NamedTuple):
    """Holds notices that go out together.

    Attributes:
        left_out: How many notices were not sent before it, because too many messages were.
        source: Of which process it tells: ``service``, ``host`` and ``process``.
    """

    notices: Sequence[Notice]
    source: Mapping[str, Any]
    left_out: int = 0

    @property
    def id(self) -> str:
        """Return what stays the same when the same notices are sent again."""
        ids = "\0".join(notice.id for notice in self.notices)
        return hashlib.sha256(ids.encode()).hexdigest()[:32]

    @property
    def title(self) -> str:
        """Return its subject, in one line."""
        titles = list(dict.fromkeys(notice.title for notice in self.notices))
        if len(titles) == 1:
            return titles[0]
        states = Counter(notice.state for notice in self.notices if notice.kind != "summary")
        words = [f"{number} {state}" for state, number in states.items()]
        if states.total() < len(self.notices):
            words.append("weekly summary")
        return ", ".join(words)

    @property
    def shown(self) -> Sequence[Notice]:
        """Return the notices that are written out."""
        return self.notices[:MOST_SHOWN]

    @property
    def footer(self) -> str:
        """Return from where it comes, and what it leaves out."""
        words = [f"From {shown_name(self.source['service'])}, process {self.source['process']}"]
        more = len(self.notices) - len(self.shown)
        if more:
            words.append(f"{more} more are not written out")
        if self.left_out:
            words.append(f"{self.left_out} notices before were left out: too many in an hour")
        return ". ".join(words) + "."

    @property
    def text(self) -> str:
        """Return it as plain text."""
        parts: list[str] = []
        for notice in self.shown:
            link = f"\n{notice.url}" if notice.url else ""
            parts.append(f"{notice.text}{link}")
        return "\n\n".join([*parts, self.footer]) + "\n"


def shown_name(name: object) -> str:
    """Return a name from outside as one line of at most 80 characters that becomes no link."""
    line = brief(printable(sanitise(str(name)[:_READ_CHARS])), _NAME_CHARS)
    if _LINKS.search(line):
        return "".join(_OPENS.get(character, character) for character in line)
    return line


def answers_link(pages_url: str, since_ns: int, until_ns: int, **names: str | None) -> str:
    """Return the address of the list of answers on the pages, or nothing without `pages_url`."""
    if not pages_url:
        return ""
    own = {name: value for name, value in names.items() if value not in (None, OTHER)}
    moments = {"since": since_ns // 10**9, "until": until_ns // 10**9 + 1}
    query = urlencode({**own, **moments}, quote_via=quote, errors="replace")
    return f"{pages_url.rstrip('/')}/answers?{query}"


def notice_of(
    change: StateChange, *, pages_url: str, since_ns: int, until_ns: int, reminder: bool = False
) -> Notice:
    """Return what is sent of a change.

    Args:
        pages_url: Where the pages are. Empty without.
        since_ns: The moment of the first answer behind it.
        until_ns: The end of the link's time.
        reminder: It was sent before.
    """
    facts: dict[str, Any] = {"criterion": change.part, "agent": change.agent}
    outcome = "fail"
    if change.kind == "judge":
        facts = {"criterion": change.part}
        outcome = "scored"
    elif change.kind != "objective":
        facts = {}
        outcome = "evaluator failed"
    url = answers_link(pages_url, since_ns, until_ns, **facts, outcome=outcome)
    facts |= {"part": change.part, **change.facts, **_figures(change)}
    state = _STATES[change.kind == "objective"][change.is_bad]
    who = shown_name(change.part)
    if change.agent is not None:
        who += f" of {shown_name(change.agent)}"
    title = f"{'still ' if reminder else ''}{state}: {who}"
    text = _WORDS[change.kind](change, reminder)
    id = uuid.uuid4().hex
    return Notice(id, change.kind, state, title, text, change.at_ns, url, reminder, facts)


def test_notice(pages_url: str) -> Notice:
    """Return what `check --send-test` sends."""
    now_ns = time.time_ns()
    link = answers_link(pages_url, now_ns - _DAY_S * 10**9, now_ns, outcome="fail")
    text = "This is a test of agenteval-otel. Messages about objectives and judges come here."
    return Notice(uuid.uuid4().hex, "test", "test", "test message", text, now_ns, link)


def moment(at_ns: int) -> str:
    """Return a moment as JSON has it, in UTC."""
    return datetime.fromtimestamp(at_ns / 1e9, UTC).isoformat(timespec="seconds")


def _figures(change: StateChange) -> dict[str, Any]:
    crossing = change.crossing
    if crossing is None:
        return {}
    figures = crossing.model_dump(include={"objective", "rate", "low", "high", "units"})
    if not crossing.has_interval:
        figures |= {"low": None, "high": None}
    figures["verdicts"] = crossing.count
    figures["since"] = moment(crossing.since_ns)
    figures["trace_id"] = crossing.trace_id
    return figures


def _of_objective(change: StateChange, reminder: bool) -> str:
    crossing = change.crossing
    assert crossing is not None
    changes: dict[str, Any] = {"criterion": shown_name(crossing.criterion), "reminder": reminder}
    if crossing.agent is not None:
        changes["agent"] = shown_name(crossing.agent)
    sentence = str(copy_with(crossing, changes))
    return f"{sentence[0].upper()}{sentence[1:]}."


def _of_judge(change: StateChange, reminder: bool) -> str:
    judge = shown_name(change.facts.get("judge", ""))
    of_criterion = f"The judge {judge} on {shown_name(change.part)}"
    if not change.is_bad:
        return f"{of_criterion} is trusted again."
    check = str(change.facts.get("check"))
    value = float(change.facts.get("value", 0.0))
    why = _CHECKS.get(check, "a check says so").format(value=value)
    return f"{of_criterion} is {'still ' if reminder else ''}not trusted: {why}."


def _of_breaker(change: StateChange, reminder: bool) -> str:
    judge = shown_name(change.part)
    if not change.is_bad:
        return f"The judge {judge} answers again: its circuit breaker is closed."
    still = "still " if reminder else ""
    return f"The judge {judge} is {still}not called: its endpoint failed again and again."


def _of_evaluator(change: StateChange, reminder: bool) -> str:
    evaluator = shown_name(change.part)
    if not change.is_bad:
        return f"The evaluator {evaluator} runs again."
    return (
        f"The evaluator {evaluator} is {'still ' if reminder else ''}not run: three times it "
        "overran its time limit, ended its process or blocked the background thread. "
        "It runs again after a restart."
    )


_WORDS: Final = {
    "objective": _of_objective,
    "judge": _of_judge,
    "breaker": _of_breaker,
    "evaluator": _of_evaluator,
}
_STATES: Final = {True: ("recovered", "breached"), False: ("well", "bad")}
