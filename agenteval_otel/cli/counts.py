"""The counts of a process: read from a file, standard input or a page with metrics."""

from __future__ import annotations

import ast
import http.client
import json
import math
import re
import sys
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar, cast

from agenteval_otel import semconv as names
from agenteval_otel.capture.reasons import REASONS
from agenteval_otel.components.explained import known_choices
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.runtime.masking import mask_text, split_address

_TIMEOUT_S: Final = 5.0
OF_CAPTURE: Final = "capture:"
"""How the failures begin that say why answers were not understood."""
Key = TypeVar("Key")


@dataclass
class Counts:
    """Counts, summed over the processes of a page.

    Attributes:
        outcomes: Calls by agent (the empty text without one), then by outcome.
        failures: By the part that broke.
        results: By status.
        errors: By criterion and `error.type`.
        lost: Telemetry by signal and reason.
        spans: Those of other libraries by what became of them.
        not_understood: Those of no known dialect by their scope.
        as_json: Evaluated answers that were judged as their JSON. None if the source does not say.
        units: Emitted answers by what they are independent by: conversation, session, trace,
            answer.
        reach: Signals by how far they are known to get.
        last_success: A Unix time.
    """

    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    failures: Counter[str] = field(default_factory=Counter)
    results: Counter[str] = field(default_factory=Counter)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    lost: Counter[tuple[str, str]] = field(default_factory=Counter)
    spans: Counter[str] = field(default_factory=Counter)
    not_understood: Counter[str] = field(default_factory=Counter)
    as_json: int | None = None
    units: Counter[str] = field(default_factory=Counter)
    reach: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    last_success: float | None = None

    @property
    def totals(self) -> Counter[str]:
        return sum(self.outcomes.values(), Counter())


def counts_from(source: str) -> Counts:
    """Return the counts of a file, of standard input (``-``) or of an ``http`` address."""
    return counts_of(text_from(source))


def text_from(source: str) -> str:
    """Return the text of a file, of standard input (``-``) or of an ``http`` address.

    Raises `ConfigurationError` if it cannot be read.
    """
    try:
        if source == "-":
            content = sys.stdin.buffer.read()
        elif source.startswith(("http://", "https://")):
            content = _fetched(source)
        else:
            content = Path(source).read_bytes()
    except (OSError, ValueError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise _wrong(mask_text(f"{source!r} cannot be read: {error}")) from None
    return content.decode("utf-8-sig", "replace")


def counts_of(text: str) -> Counts:
    """Return the counts in a text.

    The text is read as JSON if it begins with a brace or bracket, else as the lines of a Prometheus
    page.
    """
    return _of_json(text) if text.lstrip().startswith(("{", "[")) else _of_page(text)


def _wrong(message: str, path: str = "--from") -> ConfigurationError:
    return ConfigurationError(message, path=path)


def _fetched(address: str) -> bytes:
    plain, user = split_address(address)
    request = urllib.request.Request(plain)
    if user is not None:
        request.add_unredirected_header("Authorization", user)
    with urllib.request.build_opener().open(request, timeout=_TIMEOUT_S) as response:
        content: bytes = response.read()
    return content


def _of_json(text: str) -> Counts:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        try:
            value = ast.literal_eval(text.strip())  # a dictionary as Python prints it
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise _wrong(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise _wrong(f"expected a mapping of outcomes, found {type(value).__name__}")
    sections = {
        "outcomes": names.OUTCOMES,
        "failures": None,
        "results": ("scored", "skipped", "failed"),
    }
    if not value.keys() & sections.keys():
        value = {"outcomes": value}
    for name in value:
        if name not in sections:
            raise _wrong(f"unknown field{known_choices(name, sections)}", path=name)
    counts = {
        name: _numbers(value.get(name, {}), name, allowed) for name, allowed in sections.items()
    }
    return Counts({"": counts["outcomes"]}, counts["failures"], counts["results"])


def _numbers(value: object, path: str, allowed: tuple[str, ...] | None) -> Counter[str]:
    if not isinstance(value, Mapping):
        raise _wrong(f"expected a mapping of counts, found {type(value).__name__}", path=path)
    for name, count in value.items():
        if allowed is not None and name not in allowed:
            raise _wrong(f"unknown{known_choices(name, allowed)}", path=f"{path}.{name}")
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise _wrong(
                f"expected a whole number from 0, found {count!r}"[:200], path=f"{path}.{name}"
            )
    return Counter(value)


_LINE = re.compile(
    r'([a-zA-Z_:][\w:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]+(\S+)', re.ASCII
)
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"', re.ASCII)
_ESCAPED = re.compile(r"\\(.)")


def _of_page(text: str) -> Counts:
    counts = Counts(as_json=0)
    series = 0
    for name, labels, value in samples_of(text):
        series += 1

        def label(attribute: str, labels: dict[str, str] = labels) -> str:
            return labels.get(attribute.replace(".", "_"), "")

        if is_of(name, names.METRIC_SPANS):
            _count_spans(counts, label(names.SPANS_OUTCOME), label(names.SPANS_SCOPE), int(value))
        elif is_of(name, names.METRIC_RESPONSES):
            _count_calls(counts, label, int(value))
        elif is_of(name, names.METRIC_ANSWERS):
            counts.units[label(names.UNIT)] += int(value)
        elif is_of(name, names.METRIC_ERRORS):
            counts.errors[label(names.EVALUATION_NAME), label(names.ERROR_TYPE)] += int(value)
        else:
            _count_export(counts, name, label, value)
    if not counts.outcomes and not counts.spans:
        raise _wrong(
            f"{series} series, and no {names.METRIC_RESPONSES.prometheus_name} among them: is it a page with metrics, "
            "and have the application's arrived there? They come with the first evaluated answer, then every 60 s "
            "(OTEL_METRIC_EXPORT_INTERVAL)"
        )
    return counts


def _count_export(counts: Counts, name: str, label: Callable[[str], str], value: float) -> None:
    if is_of(name, names.METRIC_EXPORT_LOST):
        counts.lost[label(names.EXPORT_SIGNAL), label(names.EXPORT_REASON)] += int(value)
    elif is_of(name, names.METRIC_EXPORT_SIGNALS):
        counts.reach[label(names.EXPORT_REACH)].add(label(names.EXPORT_SIGNAL))
    elif is_of(name, names.METRIC_LAST_SUCCESS):
        counts.last_success = max(value, counts.last_success or 0.0)


def _count_calls(counts: Counts, label: Callable[[str], str], count: int) -> None:
    counts.outcomes[label(names.AGENT_NAME)][label(names.OUTCOME)] += count
    if label(names.RESPONSE_FORM):
        counts.as_json = (counts.as_json or 0) + count
    reason = label(names.CAPTURE_REASON)
    if reason:
        counts.failures[OF_CAPTURE + reason] += count


def _count_spans(counts: Counts, outcome: str, scope: str, count: int) -> None:
    counts.spans[outcome] += count
    if outcome == names.SPANS_NOT_UNDERSTOOD:
        counts.not_understood[scope] += count
    elif outcome in names.SPANS_LOST and count:
        counts.failures[f"spans:{outcome}"] += count


def samples_of(text: str, *, least: float = 0.0) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield name, labels and value of each line of a Prometheus page with a finite number.

    Numbers below `least` are left out.
    """
    for match in filter(None, map(_LINE.match, text.splitlines())):
        try:
            value = float(match[3])
        except ValueError:
            continue
        if math.isfinite(value) and value >= least:
            labels = {
                label: _ESCAPED.sub(_unescape, escaped)
                for label, escaped in _LABEL.findall(match[2] or "")
            }
            yield match[1], labels, value


def _unescape(escaped: re.Match[str]) -> str:
    return "\n" if escaped[1] == "n" else escaped[1]


def is_of(name: str, instrument: names.Instrument) -> bool:
    """Tell whether a series is the instrument's.

    A prefix of the Collector or missing suffixes are allowed.
    """
    forms = (instrument.prometheus_name, instrument.name.replace(".", "_"))
    return any(name == form or name.endswith(f"_{form}") for form in forms)


def capture_reasons(counts: Counts) -> list[str]:
    """Return why answers were not understood: for each reason its count, meaning and way out."""
    lines = []
    for part, count in descending(counts.failures):
        reason = part.removeprefix(OF_CAPTURE)
        if reason != part:
            known = REASONS.get(cast("names.CaptureReason", reason))
            words = "not known to this version"
            if known:
                words = f"{known.means}. Fix: {known.fix}"
            lines.append(f"{count:,} {reason}: {words}")
    return lines


def descending(counts: Mapping[Key, int]) -> list[tuple[Key, int]]:
    """Return the counts above 0, the largest first."""
    present = [(key, count) for key, count in counts.items() if count]
    return sorted(present, key=lambda pair: -pair[1])
