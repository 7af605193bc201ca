"""Replies: what came back over HTTP, and what it means where it is no answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from agenteval_otel.errors import ModelError
from agenteval_otel.http_client.retries import retry_after_of
from agenteval_otel.runtime.masking import mask_known, printable

__all__ = [
    "RETRYABLE",
    "Reply",
    "Secrets",
    "count_of",
    "encodable",
    "error_of",
    "joined",
    "object_of",
    "status_of",
    "unreadable",
]

RETRYABLE: Final = frozenset({"rate_limited", "overloaded", "server_error", "connection_error"})
"""Kinds of failures that asking again may help with."""

_SAID_CHARS: Final = 200
_ECHO_CHARS: Final = 16
_WORD: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")

_TYPES: Final = {
    401: "authentication", 402: "authentication", 403: "authentication", 404: "not_found", 408: "timeout",
    409: "server_error", 413: "context_overflow", 429: "rate_limited", 529: "overloaded",
}  # fmt: skip
# Asking again does not help where the money is gone.
_FOR_GOOD: Final = re.compile(r"(?i)insufficient_quota|billing|credit|spend[_ -]?limit")
_TOO_LONG: Final = re.compile(
    r"(?i)context[_ -]?(?:length|window|limit)|(?:prompt|input) is too long|too many (?:input )?tokens|maximum context"
)


class Reply(NamedTuple):
    """A response that has been read: status, headers with names in lower case, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Secrets(NamedTuple):
    """What must not come back in an error: keys, and the question."""

    keys: tuple[str, ...]
    question: str


def error_of(reply: Reply, secrets: Secrets) -> ModelError:
    """The failure that a response with an error status is."""
    kind, words, detail = _error_fields(reply)
    error_type = _type_of(reply.status, f"{kind} {words}", detail)
    for_good = reply.status == 429 and _FOR_GOOD.search(f"{kind} {words} {detail}") is not None
    may_help = error_type in RETRYABLE or reply.status == 408
    message = f"the provider answered with status {reply.status}"
    shown = " ".join(part for part in (kind, words) if part)
    message += f" ({mask_known(shown, secrets.keys)})" if shown else ""
    quoted = _quotable(detail, secrets)
    return ModelError(
        f"{message}: {quoted}" if quoted else message, error_type=error_type,
        retryable=may_help and not for_good, retry_after_s=retry_after_of(reply.headers),
    )  # fmt: skip


def object_of(reply: Reply) -> dict[str, Any]:
    """The JSON object that a response without an error is.

    Raises:
        ModelError: ``malformed_answer``: another content type, or no JSON object.
    """
    kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        shown = kind if re.fullmatch(r"[\w.+/-]{1,80}", kind) else "none that is known"
        raise unreadable(f"has the content type {shown}")
    try:
        document = json.loads(reply.body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise unreadable("is no JSON object")
    return document


def status_of(error: Any) -> int | None:
    """The status that gateways put inside of a response without one; None where there is no error after all."""
    if not error:
        return None
    code = error.get("code") if isinstance(error, Mapping) else None
    return code if type(code) is int and 400 <= code < 600 else 500


def unreadable(what: str) -> ModelError:
    """The failure of a response that is not in the provider's form."""
    return ModelError(f"the response {what}", error_type="malformed_answer")


def count_of(usage: Any, name: str) -> int:
    """A number of tokens; 0 where there is none that makes sense."""
    count = usage.get(name) if isinstance(usage, Mapping) else None
    return count if type(count) is int and 0 <= count < 2**53 else 0


def encodable(text: str) -> str:
    """Text with the replacement character for what no encoding has."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def joined(parts: list[Any]) -> str | None:
    """The text of the parts; None where one of them is none of text."""
    texts: list[str] = []
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) else None
        if not isinstance(text, str):
            return None
        texts.append(text)
    return "".join(texts)


def _type_of(status: int, words: str, message: str) -> str:
    if "overloaded" in words:
        return "overloaded"
    if status in (400, 422) and _TOO_LONG.search(f"{words} {message}"):
        return "context_overflow"
    return _TYPES.get(status) or ("server_error" if status >= 500 else "bad_request")


def _error_fields(reply: Reply) -> tuple[str, str, str]:
    """Type, code and message of an error, in either of the providers' forms."""
    try:
        body = json.loads(reply.body)
    except (ValueError, RecursionError):
        return "", "", ""
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, str):
        return "", "", error[:1_000]
    if not isinstance(error, dict):
        return "", "", ""
    details = error.get("details")
    code = details.get("error_code") if isinstance(details, dict) else error.get("code")
    return _short_text(error.get("type")), _short_text(code), str(error.get("message") or "")[:1_000]


def _short_text(value: Any) -> str:
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""


def _quotable(message: str, secrets: Secrets) -> str:
    """The provider's message, where it does not repeat the question: what is evaluated belongs into no error."""
    message = message.strip()
    starts = range(0, len(message) - _ECHO_CHARS + 1, _ECHO_CHARS // 2)
    if any(message[at : at + _ECHO_CHARS] in secrets.question for at in starts):
        return ""
    # Masked before it is cut, so that no half of a key is left.
    return printable(mask_known(message, secrets.keys))[:_SAID_CHARS]
