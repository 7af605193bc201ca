"""Replies: what a response means where it is no answer."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

from agenteval_otel.errors import ModelError
from agenteval_otel.runtime.masking import mask_known, printable

RETRYABLE: Final = frozenset({"rate_limited", "overloaded", "server_error", "connection_error"})
"""The error types that a retry may help with."""

_READ_CHARS: Final = 64_000  # longer messages are not quoted: looking for keys takes time
_QUOTED_CHARS: Final = 200
_ECHO_CHARS: Final = 16
_KEY_PART_CHARS: Final = 8
_WORD: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TYPES: Final = {
    401: "authentication", 402: "authentication", 403: "authentication", 404: "not_found", 408: "timeout",
    409: "server_error", 413: "context_overflow", 429: "rate_limited", 529: "overloaded",
}  # fmt: skip
# A retry does not help where the money is gone.
_FOR_GOOD: Final = re.compile(r"(?i)insufficient_quota|billing|credit|spend[_ -]?limit")
_TOO_LONG: Final = re.compile(
    r"(?i)context[_ -]?(?:length|window|limit)|(?:prompt|input) is too long|too many (?:input )?tokens|maximum context"
)


class Reply(NamedTuple):
    """A response that has been read: status, headers with names in lower case, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def error_of(reply: Reply, keys: Sequence[str], question: str) -> ModelError:
    """Return the failure that a response with an error status is.

    Its message repeats neither keys nor the question.
    """
    words, detail = _error_fields(reply)
    if "overloaded" in words:
        error_type = "overloaded"
    elif reply.status in (400, 422) and _TOO_LONG.search(f"{words} {detail}"):
        error_type = "context_overflow"
    elif reply.status in _TYPES:
        error_type = _TYPES[reply.status]
    elif reply.status >= 500:
        error_type = "server_error"
    else:
        error_type = "bad_request"
    is_for_good = reply.status == 429 and _FOR_GOOD.search(f"{words} {detail}")
    retryable = not is_for_good and (error_type in RETRYABLE or reply.status == 408)
    message = f"the provider answered with status {reply.status}"
    if words:
        message += f" ({mask_known(words, keys)})"
    if detail and not _repeats(detail, question, _ECHO_CHARS, step=_ECHO_CHARS // 2):
        # Masked before it is cut, so that no half of a key is left. The provider may have cut one
        # too, so the parts of keys are looked for below.
        quoted = printable(mask_known(detail, keys))[:_QUOTED_CHARS]
        if not any(_repeats(quoted, key, _KEY_PART_CHARS) for key in keys):
            message += f": {quoted}"
    return ModelError(
        message,
        error_type=error_type,
        retryable=retryable,
        retry_after_s=retry_after_of(reply.headers),
    )


def object_of(reply: Reply) -> dict[str, Any]:
    """Return the JSON object that a response without an error is.

    Raises `ModelError` (``malformed_answer``) for others.
    """
    kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        shown = kind if re.fullmatch(r"[\w.+/-]{1,80}", kind) else "none that is known"
        raise unreadable(f"has the content type {shown}")
    document = _json(reply.body)
    if not isinstance(document, dict):
        raise unreadable("is no JSON object")
    return document


def status_of(error: object) -> int | None:
    """Return the status that gateways put inside of a response without one.

    Return None if there is no error after all.
    """
    if not error:
        return None
    code = error.get("code") if isinstance(error, Mapping) else None
    return code if type(code) is int and 400 <= code < 600 else 500


def unreadable(what: str) -> ModelError:
    """Return the failure of a response that is not in the provider's form."""
    return ModelError(f"the response {what}", error_type="malformed_answer")


def count_of(usage: object, name: str) -> int:
    """Return a number of tokens. It is 0 if the number makes no sense."""
    count = usage.get(name) if isinstance(usage, Mapping) else None
    return count if type(count) is int and 0 <= count < 2**53 else 0


def encodable(text: str) -> str:
    """Return the text with the replacement character for what has no encoding."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def joined(parts: list[Any]) -> str | None:
    """Return the text of the parts, or None if a part has none."""
    texts = [part.get("text") if isinstance(part, Mapping) else None for part in parts]
    known = [text for text in texts if isinstance(text, str)]
    return "".join(known) if len(known) == len(texts) else None


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _error_fields(reply: Reply) -> tuple[str, str]:
    """Return type and code of an error, and its message, in either of the providers' forms."""
    body = _json(reply.body)
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, str):
        error = {"message": error}
    elif not isinstance(error, dict):
        return "", ""
    details = error.get("details")
    code = details.get("error_code") if isinstance(details, dict) else error.get("code")
    words: list[str] = []
    for word in (error.get("type"), code):
        if isinstance(word, str) and _WORD.fullmatch(word):
            words.append(word)
    message = str(error.get("message") or "").strip()
    if len(message) > _READ_CHARS:
        message = ""
    return " ".join(words), message


def _repeats(message: str, known: str, length: int, *, step: int = 1) -> bool:
    """Tell whether the provider's message quotes so many characters of the question or of a key.

    The question is content.
    """
    starts = range(0, len(message) - length + 1, step)
    return any(message[start : start + length] in known for start in starts)


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a response asks to wait, as a number or a date, if readable."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        seconds = _seconds(headers.get(name, "").strip()[:64])
        if seconds is not None and math.isfinite(seconds) and seconds >= 0.0:
            return seconds * unit
    return None


def _seconds(value: str) -> float | None:
    with contextlib.suppress(ValueError):
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    if not date.tzinfo:
        date = date.replace(tzinfo=UTC)
    wait = date - datetime.now(UTC)
    return max(0.0, wait.total_seconds())
