"""Replies: an HTTP session whose answers are bounded, and which remembers how the last one refused.

What a collector answers is of no use to us but for its status: more than a little of it is not read. OTLP's way of
saying "smaller, please" (413) and "later, please" (429 and 503 with ``Retry-After``) is kept for whoever sent.
"""

from __future__ import annotations

import email.utils
import importlib
import time
from typing import Any

__all__ = ["bounded_session"]

MAX_REPLY_BYTES = 64 * 1024
MAX_WAIT_S = 60.0
_LATER = frozenset({429, 503})


def bounded_session() -> Any:
    """A new `requests.Session` with `status` and `wait_s` of its last answer; imports `requests`."""
    requests = importlib.import_module("requests")

    class BoundedSession(requests.Session):  # type: ignore[misc, name-defined, unused-ignore]
        status: int | None = None
        wait_s: float | None = None

        def __init__(self) -> None:
            super().__init__()
            self.headers["Accept-Encoding"] = "identity"  # nothing that unpacks into more than it is

        def send(self, request: Any, **options: Any) -> Any:
            """Send, and read no more of the answer than a little."""
            self.status = self.wait_s = None
            response = super().send(request, **{**options, "stream": True})
            self.status = response.status_code
            if self.status in _LATER:
                self.wait_s = _seconds(response.headers.get("retry-after"))
            if _is_short(response.headers):
                response.content  # noqa: B018 - reads it, so that the connection can be used again
            else:
                response.close()
            return response

    return BoundedSession()


def _is_short(headers: Any) -> bool:
    length = headers.get("content-length", "")
    return bool(length.isdecimal() and int(length[:12]) <= MAX_REPLY_BYTES and "content-encoding" not in headers)


def _seconds(said: str | None) -> float | None:
    """``Retry-After``: seconds or a date; at most `MAX_WAIT_S`."""
    if said is None:
        return None
    try:
        wait_s = float(said)
    except ValueError:
        try:
            wait_s = email.utils.parsedate_to_datetime(said).timestamp() - time.time()
        except (TypeError, ValueError, OverflowError):
            return None
    return min(max(wait_s, 0.0), MAX_WAIT_S) if wait_s == wait_s else None
