"""The link from an answer to its trace, in the program that has the traces."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import SplitResult, quote, urlsplit

from agenteval_otel.components.explained import known_choices
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import SpanReference

_IDS: Final = ("trace_id", "span_id")
# The braces of JSON, as in addresses of Grafana, have quotation marks behind them.
_PLACEHOLDER: Final = re.compile(r"\{(\w*)\}")
_PROGRAMS: Final = {
    "Phoenix": re.compile(r"phoenix|:6006/|/redirects/(?:traces|spans)/"),
    "Grafana": re.compile(r"grafana|/explore\b"),
    "Jaeger": re.compile(r"jaeger|:16686/|/trace/"),
}
"""Programs that show traces, by what their addresses have. The first one counts."""
_EXAMPLE: Final = "http://localhost:16686/trace/{trace_id}"


class TraceLink(NamedTuple):
    """An address, and the name of the program behind it."""

    program: str
    address: str


def check_trace_url(url: str | None, path: str) -> None:
    """Raise `ConfigurationError` for an address that leads to no trace. `path` names the setting."""
    if url is None:
        return
    parts = _parts_of(url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.netloc:
        wrong = f"expected an http address with {{trace_id}}, such as {_EXAMPLE}"
        raise ConfigurationError(wrong, path=path)
    names = _PLACEHOLDER.findall(url)
    unknown = next((name for name in names if name not in _IDS), None)
    if unknown is not None:
        choices = known_choices(unknown, _IDS)
        raise ConfigurationError(f"unknown placeholder {{{unknown}}}{choices}", path=path)
    if not names:
        wrong = f"the address has no {{trace_id}}. Expected such as {_EXAMPLE}"
        raise ConfigurationError(wrong, path=path)
    if _PLACEHOLDER.search(parts.netloc):
        raise ConfigurationError("an id cannot be part of the host's name", path=path)


def trace_link(url: str | None, span: SpanReference | None) -> TraceLink | None:
    """Return the link to a span's trace. None without an address, or without a span."""
    if url is None or span is None:
        return None
    ids = {"trace_id": span.trace_id, "span_id": span.span_id}
    # An id that was changed by hand stays one part of the address.
    address = _PLACEHOLDER.sub(lambda match: quote(ids.get(match[1], ""), safe=""), url)
    return TraceLink(_program_of(url), address)


def _program_of(url: str) -> str:
    lowered = url.lower()
    return next((name for name, sign in _PROGRAMS.items() if sign.search(lowered)), "trace")


def _parts_of(url: str) -> SplitResult | None:
    try:
        return urlsplit(url)
    except ValueError:
        return None
