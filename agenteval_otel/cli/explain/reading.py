"""Counts from outside: JSON as `accounting()` gives it, or a Prometheus page; bounded in size and time."""

from __future__ import annotations

import http.client
import json
import math
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from agenteval_otel import semconv as names
from agenteval_otel.components import choices
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.masking import mask_text, split_address

__all__ = ["MAX_BYTES", "Counts", "counts_from", "counts_of"]

MAX_BYTES = 16 * 1024 * 1024
TIMEOUT_S = 5.0
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class Counts(NamedTuple):
    """What was counted, summed over the processes that a page tells of.

    Attributes:
        outcomes: By agent, then by outcome; the agent of counts that name none is the empty text.
        failures: By the part that broke.
        results: ``scored``, ``skipped``, ``failed``.
        errors: Failed results by criterion and `error.type`.
        queue: ``size``, ``bytes``, ``max_bytes``.
        last_success: Unix time of the last delivered result.
        lost: What was lost on the way out, by signal and reason.
        reach: Signals by what is known of their way: ``delivered``, ``handed_over``.
    """

    outcomes: dict[str, dict[str, int]]
    failures: dict[str, int]
    results: dict[str, int]
    errors: dict[tuple[str, str], int]
    queue: dict[str, int]
    last_success: float | None = None
    lost: dict[tuple[str, str], int] = {}
    reach: dict[str, set[str]] = {}

    @property
    def totals(self) -> dict[str, int]:
        """Calls by outcome, all agents together."""
        totals: dict[str, int] = {}
        for cell in self.outcomes.values():
            for outcome, count in cell.items():
                totals[outcome] = totals.get(outcome, 0) + count
        return totals


def counts_from(source: str) -> Counts:
    """The counts at a place: a file, ``-`` for standard input, or an ``http`` address. Blocks for at most five seconds.

    Raises:
        ConfigurationError: Nothing can be read there, or what is there holds no counts of ours.
    """
    try:
        if source == "-":
            found = sys.stdin.buffer.read(MAX_BYTES + 1)
        elif "://" in source:
            found = _fetched(source)
        else:
            with Path(source).open("rb") as file:
                found = file.read(MAX_BYTES + 1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise _wrong(f"{mask_text(source)!r} cannot be read: {_reason(error)}") from None
    if len(found) > MAX_BYTES:
        raise _wrong(f"{mask_text(source)!r} is larger than {MAX_BYTES // 1024 // 1024} MiB")
    return counts_of(found.decode("utf-8", "replace"))


def counts_of(text: str) -> Counts:
    """The counts in a text: JSON where it begins with a brace, else the lines of a Prometheus page.

    Raises:
        ConfigurationError: It holds none of ours.
    """
    return _of_json(text) if text.lstrip("\ufeff \t\r\n").startswith(("{", "[")) else _of_page(text)


def _wrong(message: str, path: str = "--from") -> ConfigurationError:
    return ConfigurationError(message, path=path)


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"it answered {error.code}" + (", and redirects are not followed" if 300 <= error.code < 400 else "")
    said = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return mask_text(str(said))[:200] or type(error).__name__


def _fetched(address: str) -> bytes:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected http://host or https://host")
    plain, user = split_address(address)
    request = urllib.request.Request(plain, headers={"Accept": "text/plain;version=0.0.4"})
    if user is not None:
        request.add_header("Authorization", user)
    # Assembled by hand: the usual opener follows redirects and takes the credentials along.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler({} if parts.hostname in _LOOPBACK else None), urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(), urllib.request.HTTPDefaultErrorHandler(), urllib.request.HTTPErrorProcessor(),
    ):  # fmt: skip
        opener.add_handler(handler)
    deadline, found = time.monotonic() + TIMEOUT_S, b""
    with opener.open(request, timeout=TIMEOUT_S) as answer:
        # In pieces: the limit holds for each wait, and a page may come a byte at a time.
        while len(found) <= MAX_BYTES and (piece := answer.read1(65_536)):
            found += piece
            if time.monotonic() > deadline:
                raise TimeoutError(f"no end within {TIMEOUT_S:g} s")
    return found


def _of_json(text: str) -> Counts:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        try:
            found = json.loads(text.replace("'", '"'))  # a dictionary as Python prints it
        except (ValueError, RecursionError):
            raise _wrong(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise _wrong(f"expected a mapping of outcomes, found {type(found).__name__}")
    sections = {"outcomes": names.OUTCOMES, "failures": None, "results": ("scored", "skipped", "failed")}
    if not found.keys() & sections.keys():
        found = {"outcomes": found}
    for name in found:
        if name not in sections:
            raise _wrong(f"unknown field{choices(name, sections)}", path=name)
    counted = {name: _numbers(found.get(name, {}), name, known) for name, known in sections.items()}
    return Counts({"": counted["outcomes"]}, counted["failures"], counted["results"], {}, {})


def _numbers(value: Any, path: str, known: tuple[str, ...] | None) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise _wrong(f"expected a mapping of counts, found {type(value).__name__}", path=path)
    for name, count in value.items():
        if known is not None and name not in known:
            raise _wrong(f"unknown{choices(name, known)}", path=f"{path}.{name}")
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise _wrong(f"expected a whole number from 0, found {count!r}"[:200], path=f"{path}.{name}")
    return dict(value)


_LINE = re.compile(r'([a-zA-Z_:][\w:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]+(\S+)', re.ASCII)
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"', re.ASCII)
_ESCAPED = re.compile(r"\\(.)")
_QUEUE = {"size": names.METRIC_QUEUE_SIZE, "max_bytes": names.METRIC_QUEUE_MAX_BYTES, "bytes": names.METRIC_QUEUE_BYTES}


def _of_page(text: str) -> Counts:
    counts = Counts({}, {}, {}, {}, {})
    moments: list[float] = []
    lost: dict[tuple[str, str], int] = {}
    reach: dict[str, set[str]] = {}
    series = 0
    for name, labels, value in _samples(text):
        series += 1
        if _is(name, names.METRIC_RESPONSES):
            cell = counts.outcomes.setdefault(labels.get(_label(names.AGENT_NAME), ""), {})
            _add(cell, labels.get(_label(names.OUTCOME), ""), value)
        elif _is(name, names.METRIC_ERRORS):
            criterion, word = labels.get(_label(names.EVALUATION_NAME), ""), labels.get(_label(names.ERROR_TYPE), "")
            counts.errors[criterion, word] = counts.errors.get((criterion, word), 0) + int(value)
        elif _is(name, names.METRIC_EXPORT_LOST):
            key = labels.get(_label(names.EXPORT_SIGNAL), ""), labels.get(_label(names.EXPORT_REASON), "")
            lost[key] = lost.get(key, 0) + int(value)
        elif _is(name, names.METRIC_EXPORT_SIGNALS):
            known = reach.setdefault(labels.get(_label(names.EXPORT_REACH), ""), set())
            known.add(labels.get(_label(names.EXPORT_SIGNAL), ""))
        elif _is(name, names.METRIC_LAST_SUCCESS):
            moments.append(value)
        else:
            for part, instrument in _QUEUE.items():
                if _is(name, instrument):
                    _add(counts.queue, part, value)
    if not counts.outcomes:
        raise _wrong(
            f"{series} series, and no {names.METRIC_RESPONSES.prometheus_name} among them: is it a page with metrics, "
            "and have the application's arrived there? They come with the first evaluated answer, then every 60 s "
            "(OTEL_METRIC_EXPORT_INTERVAL)"
        )
    return counts._replace(last_success=max(moments, default=None), lost=lost, reach=reach)


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        try:
            value = float(found[3])
        except ValueError:
            continue
        if math.isfinite(value) and value >= 0:
            labels = {name: _ESCAPED.sub(_meant, said) for name, said in _LABEL.findall(found[2] or "")}
            yield found[1], labels, value


def _meant(escaped: re.Match[str]) -> str:
    return "\n" if escaped[1] == "n" else escaped[1]


def _is(name: str, instrument: names.Instrument) -> bool:
    """Whether a series is the instrument's, also behind a prefix of the Collector's or without suffixes."""
    forms = (instrument.prometheus_name, instrument.name.replace(".", "_"))
    return name.endswith(forms) and any(name == form or name.endswith(f"_{form}") for form in forms)


def _label(attribute: str) -> str:
    return attribute.replace(".", "_")


def _add(cell: dict[str, int], key: str, value: float) -> None:
    cell[key] = cell.get(key, 0) + int(value)
