"""The package's log lines: structlog over the standard library's logger ``agenteval_otel``."""

from __future__ import annotations

import logging
import random
import re
import sys
import threading
import time
import tomllib  # at once: a forked child cannot complete an import that its parent was within
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.masking import printable

_EVERY_S = 60.0
_MAX_CAUSES = 256
_OTHERS = "other causes"
_NAME = "agenteval_otel"
_FACT: Final = re.compile(r"\{(\w+)\}")  # in a sentence: {name}
# In a sentence: [words that are left out if a fact in them is not known]
_OPTIONAL: Final = re.compile(r"\[([^\]]*)\]")


class _Cause:
    """Limits one event of one part to one line a minute.

    Concurrent or nested warnings are left out.
    """

    def __init__(self) -> None:
        self.due = 0.0
        self.left_out = 0
        self._writing = threading.Lock()

    def turn(self, now: float) -> int | None:
        """Return how many lines were left out, to the caller that writes the next one.

        Return None to all others.
        """
        if now >= self.due and self._writing.acquire(blocking=False):
            is_due = now >= self.due  # another thread may have had its turn meanwhile
            left_out = self.left_out
            if is_due:
                self.due = now + _EVERY_S
                self.left_out = 0
            self._writing.release()
            if is_due:
                return left_out
        self.left_out += 1
        return None


class LogLine(NamedTuple):
    """What an event's line says. The fields are described in log_lines.toml."""

    says: str
    means: str
    page: str
    remedies: Sequence[str]


@cache
def log_lines() -> dict[str, LogLine]:
    """Read what every event's line says, by the event's name."""
    text = Path(__file__).with_name("log_lines.toml").read_text(encoding="utf-8")
    return {event: LogLine(**entry) for event, entry in tomllib.loads(text).items()}


def in_words(line: LogLine, facts: Mapping[str, Any]) -> tuple[str, set[str]]:
    """Return the sentence with its facts, and the names of the facts that have several words."""
    with_spaces: set[str] = set()

    def filled(match: re.Match[str]) -> str:
        value = facts.get(match[1])
        if isinstance(value, float):
            return f"{value:,.4g}"
        if isinstance(value, int):
            return f"{value:,}"
        shown = printable(" ".join(str(value).split()))  # names may come from outside
        if " " in shown:
            with_spaces.add(match[1])
        return shown

    def optional(match: re.Match[str]) -> str:
        inner = match[1]
        is_known = all(facts.get(name) is not None for name in _FACT.findall(inner))
        return inner if is_known else ""

    return _FACT.sub(filled, _OPTIONAL.sub(optional, line.says)), with_spaces


def _rendered(lines: Mapping[str, LogLine], event: str, facts: Mapping[str, Any]) -> str:
    """Return the sentence with its page, then the event with its facts.

    Without a handler the standard library writes the line alone, to a terminal. It then begins with
    time, level and our name, and facts of several words, which the sentence tells, are not repeated.
    """
    is_alone = not logging.getLogger(_NAME).hasHandlers()
    prefix = f"{time.strftime('%Y-%m-%d %H:%M:%S')} WARNING agenteval-otel: " if is_alone else ""
    shown: dict[str, Any] = {"event": event, **facts}
    if line := lines.get(event):
        sentence, facts_in_sentence = in_words(line, facts)
        prefix += f"{sentence}. See docs/{line.page} "
        if is_alone:
            shown = {name: value for name, value in shown.items() if name not in facts_in_sentence}
    fields = " ".join(f"{name}={value!r}" for name, value in shown.items())
    return f"{prefix}[{fields}]"


class _Plain:
    """Writes the same lines as structlog's logger, without it."""

    def __init__(self, lines: Mapping[str, LogLine]) -> None:
        self._lines = lines

    def warning(self, event: str, **facts: Any) -> None:
        logging.getLogger(_NAME).warning(_rendered(self._lines, event, facts))

    def debug(self, event: str, **facts: Any) -> None:
        logging.getLogger(_NAME).debug(_rendered(self._lines, event, facts))


class _Log:
    def __init__(self) -> None:
        self._last: dict[str, _Cause] = {}
        self._logger: Any = None

    def warning(self, event: str, **facts: Any) -> None:
        """Write a sentence and ``[event='...' part='...']``, or count that it was left out.

        Never raises.
        """
        self._write("warning", event, facts)

    def debug(self, event: str, **facts: Any) -> None:
        """Write a line as `warning` does, at debug level: for what may quote an answer."""
        if self.shows_debug:
            self._write("debug", event, facts)

    @property
    def shows_debug(self) -> bool:
        """Tell whether the application's logging shows our lines of debug level."""
        return logging.getLogger(_NAME).isEnabledFor(logging.DEBUG)

    def _write(self, level: str, event: str, facts: dict[str, Any]) -> None:
        try:
            now = time.monotonic()
            key = f"{event}:{facts.get('part', '')}"[:200]
            left_out = self._cause(key, now).turn(now)
            if left_out is None:
                return
            if left_out:
                facts["left_out"] = left_out
            getattr(self._chosen(), level)(event, **facts)
        except Exception:  # of a handler or a processor of the host's: a log line breaks nothing
            return

    def forget(self) -> None:
        """Forget all causes, in a forked child."""
        self._last = {}  # a lock may have been taken while the parent forked

    def _cause(self, key: str, now: float) -> _Cause:
        """Return the cause with this key. Beyond 256 causes of the last minute all others share one."""
        causes = self._last
        if key not in causes and len(causes) >= _MAX_CAUSES:  # more than anybody reads
            for old in [name for name, cause in list(causes.items()) if cause.due <= now]:
                causes.pop(old, None)
            if len(causes) >= _MAX_CAUSES:
                key = _OTHERS  # they share one line a minute
        return causes.setdefault(key, _Cause())

    def _chosen(self) -> Any:
        """Return structlog's logger. While it cannot be imported, return one that does without."""
        if self._logger is not None:
            return self._logger
        lines: Mapping[str, LogLine] = {}
        with suppress(Exception):  # as in a process that has lost the right to read it
            lines = log_lines()
            self._logger = _structured(lines)
        return _Plain(lines) if self._logger is None else self._logger


def _structured(lines: Mapping[str, LogLine]) -> Any:
    """Return structlog's logger, or None if structlog is not imported and other threads run.

    The import takes a tenth of a second and brings rich, which draws from `random`. Meanwhile
    another thread could draw before the application's state is restored, or fork a child, which
    would wait for the import forever.
    """
    structlog: Any = sys.modules.get("structlog")
    if structlog is None and threading.active_count() == 1:
        state = random.getstate()
        try:
            structlog = import_module("structlog")
        finally:
            random.setstate(state)
    if not hasattr(structlog, "wrap_logger"):  # another thread may be within its import
        return None

    def render(logger: object, method: str, facts: MutableMapping[str, Any]) -> str:
        return _rendered(lines, facts.pop("event"), facts)

    return structlog.wrap_logger(
        logging.getLogger(_NAME),
        processors=(render,),
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
        cache_logger_on_first_use=False,
    )


log = _Log()
"""The package's logger."""
reset_in_child(log.forget)
