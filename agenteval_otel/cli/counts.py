"""Reads counts: JSON as `accounting()` gives it, or a Prometheus page; bounded in size and time."""

from __future__ import annotations

import http.client
import json
import math
import re
import sys
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agenteval_otel import semconv as names
from agenteval_otel.components.explained import known_choices
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.runtime.masking import mask_text, split_address

MAX_BYTES = 16 * 1024 * 1024
TIMEOUT_S = 5.0
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass
class Counts:
    """Counts, summed over the processes of a page.

    Attributes:
        outcomes: By agent (the empty text without one), then by outcome.
        failures: By the part that failed.
        results: ``scored``, ``skipped``, ``failed``.
        errors: Failed results by criterion and `error.type`.
        lost: Telemetry that was lost, by signal and reason.
        queue: ``size``, ``bytes``, ``max_bytes``.
        reach: Signals by how far they are known to get: ``delivered``, ``handed_over``.
        last_success: Unix time of the last delivered result.
    """

    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    failures: Counter[str] = field(default_factory=Counter)
    results: Counter[str] = field(default_factory=Counter)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    lost: Counter[tuple[str, str]] = field(default_factory=Counter)
    queue: Counter[str] = field(default_factory=Counter)
    reach: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    last_success: float | None = None

    @property
    def totals(self) -> Counter[str]:
        """Calls by outcome, all agents together."""
        return sum(self.outcomes.values(), Counter())


def counts_from(source: str) -> Counts:
    """The counts of a file, of standard input (``-``) or of an ``http`` address. Blocks for at most five seconds."""
    try:
        if source == "-":
            content = sys.stdin.buffer.read(MAX_BYTES + 1)
        elif "://" in source:
            content = _fetched(source)
        else:
            with Path(source).open("rb") as file:
                content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise _wrong(f"{mask_text(source)!r} cannot be read: {_reason(error)}") from None
    if len(content) > MAX_BYTES:
        raise _wrong(f"{mask_text(source)!r} is larger than {MAX_BYTES // 1024 // 1024} MiB")
    return counts_of(content.decode("utf-8", "replace"))


def counts_of(text: str) -> Counts:
    """The counts in a text: JSON where it begins with a brace or bracket, else the lines of a Prometheus page."""
    return _of_json(text) if text.lstrip("\ufeff \t\r\n").startswith(("{", "[")) else _of_page(text)


def _wrong(message: str, path: str = "--from") -> ConfigurationError:
    return ConfigurationError(message, path=path)


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"it answered {error.code}" + (", and redirects are not followed" if 300 <= error.code < 400 else "")
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return mask_text(str(reason))[:200] or type(error).__name__


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would send the credentials along."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _fetched(address: str) -> bytes:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected http://host or https://host")
    plain, user = split_address(address)
    request = urllib.request.Request(plain, headers={"Accept": "text/plain;version=0.0.4"})
    if user is not None:
        request.add_header("Authorization", user)
    proxies = urllib.request.ProxyHandler({} if parts.hostname in _LOOPBACK else None)
    deadline, content = time.monotonic() + TIMEOUT_S, b""
    with urllib.request.build_opener(proxies, _NoRedirects).open(request, timeout=TIMEOUT_S) as response:
        # The timeout applies to each read, and a page may arrive one byte at a time.
        while len(content) <= MAX_BYTES and (piece := response.read1(65_536)):
            content += piece
            if time.monotonic() > deadline:
                raise TimeoutError(f"no end within {TIMEOUT_S:g} s")
    return content


def _of_json(text: str) -> Counts:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        try:
            value = json.loads(text.replace("'", '"'))  # a dictionary as Python prints it
        except (ValueError, RecursionError):
            raise _wrong(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise _wrong(f"expected a mapping of outcomes, found {type(value).__name__}")
    sections = {"outcomes": names.OUTCOMES, "failures": None, "results": ("scored", "skipped", "failed")}
    if not value.keys() & sections.keys():
        value = {"outcomes": value}
    for name in value:
        if name not in sections:
            raise _wrong(f"unknown field{known_choices(name, sections)}", path=name)
    counts = {name: _numbers(value.get(name, {}), name, allowed) for name, allowed in sections.items()}
    return Counts({"": counts["outcomes"]}, counts["failures"], counts["results"])


def _numbers(value: Any, path: str, allowed: tuple[str, ...] | None) -> Counter[str]:
    if not isinstance(value, Mapping):
        raise _wrong(f"expected a mapping of counts, found {type(value).__name__}", path=path)
    for name, count in value.items():
        if allowed is not None and name not in allowed:
            raise _wrong(f"unknown{known_choices(name, allowed)}", path=f"{path}.{name}")
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise _wrong(f"expected a whole number from 0, found {count!r}"[:200], path=f"{path}.{name}")
    return Counter(value)


_LINE = re.compile(r'([a-zA-Z_:][\w:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]+(\S+)', re.ASCII)
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"', re.ASCII)
_ESCAPED = re.compile(r"\\(.)")
_QUEUE = {"size": names.METRIC_QUEUE_SIZE, "max_bytes": names.METRIC_QUEUE_MAX_BYTES, "bytes": names.METRIC_QUEUE_BYTES}


def _of_page(text: str) -> Counts:
    counts, series = Counts(), 0
    for name, labels, value in _samples(text):
        series += 1
        label = partial(_label, labels)
        if _is(name, names.METRIC_RESPONSES):
            counts.outcomes[label(names.AGENT_NAME)][label(names.OUTCOME)] += int(value)
        elif _is(name, names.METRIC_ERRORS):
            counts.errors[label(names.EVALUATION_NAME), label(names.ERROR_TYPE)] += int(value)
        elif _is(name, names.METRIC_EXPORT_LOST):
            counts.lost[label(names.EXPORT_SIGNAL), label(names.EXPORT_REASON)] += int(value)
        elif _is(name, names.METRIC_EXPORT_SIGNALS):
            counts.reach[label(names.EXPORT_REACH)].add(label(names.EXPORT_SIGNAL))
        elif _is(name, names.METRIC_LAST_SUCCESS):
            counts.last_success = max(value, counts.last_success or 0.0)
        elif part := next((part for part, instrument in _QUEUE.items() if _is(name, instrument)), None):
            counts.queue[part] += int(value)
    if not counts.outcomes:
        raise _wrong(
            f"{series} series, and no {names.METRIC_RESPONSES.prometheus_name} among them: is it a page with metrics, "
            "and have the application's arrived there? They come with the first evaluated answer, then every 60 s "
            "(OTEL_METRIC_EXPORT_INTERVAL)"
        )
    return counts


def _label(labels: dict[str, str], attribute: str) -> str:
    return labels.get(attribute.replace(".", "_"), "")


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if math.isfinite(value) and value >= 0:
            labels = {name: _ESCAPED.sub(lambda escaped: "\n" if escaped[1] == "n" else escaped[1], text)
                      for name, text in _LABEL.findall(match[2] or "")}  # fmt: skip
            yield match[1], labels, value


def _is(name: str, instrument: names.Instrument) -> bool:
    """Whether a series is the instrument's, with a prefix of the Collector or without suffixes too."""
    forms = (instrument.prometheus_name, instrument.name.replace(".", "_"))
    return name.endswith(forms) and any(name == form or name.endswith(f"_{form}") for form in forms)
