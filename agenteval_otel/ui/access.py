"""Access to the pages, which are closed by default.

A token in the address becomes a cookie. Other sites get nothing. No foreign script runs.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

from agenteval_otel.runtime.local_names import LocalNames

_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
    "x-frame-options": "DENY",
}
_CLOSED: Final = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>agenteval-otel</title><h1>Closed</h1>"
    "<p>Open the address that <code>agenteval-otel ui</code> printed: the token in it opens these pages."
)


class _Refusal(NamedTuple):
    """Holds a response in place of the page's."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Access:
    """The token of a run, and the names under which it is reached.

    Attributes:
        token: Stands in the address that is opened.
        csrf: Stands in every form, and is not to be guessed by another site.
        address: Of the page that is opened first, with the token.
    """

    def __init__(self, port: int, *, page: str = "/") -> None:
        self.token = secrets.token_urlsafe(24)
        self._session = secrets.token_urlsafe(24)
        self.csrf = hmac.new(self._session.encode(), b"form", hashlib.sha256).hexdigest()
        self.cookie = f"agenteval_{port}"  # cookies do not tell ports apart
        self._names = LocalNames(port=port)
        self.address = f"http://127.0.0.1:{port}{page}?token={self.token}"

    def __repr__(self) -> str:
        return f"<Access {self.cookie}>"

    def wrap(self, app: Callable[..., Awaitable[object]]) -> Any:
        """Return the ASGI application behind this access."""

        async def closed(
            scope: Mapping[str, Any],
            receive: object,
            send: Callable[[Mapping[str, Any]], Awaitable[None]],
        ) -> None:
            if scope["type"] != "http":
                return
            headers = {
                name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
            }

            async def send_with_headers(message: Mapping[str, Any]) -> None:
                if message["type"] == "http.response.start":
                    pairs = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                    message = {**message, "headers": [*message.get("headers", ()), *pairs]}
                await send(message)

            refusal = self._refusal(scope, headers)
            if refusal is None:
                await app(scope, receive, send_with_headers)
                return
            pairs = [
                (b"content-type", b"text/html; charset=utf-8"),
                (b"content-length", str(len(refusal.body)).encode()),
                *refusal.headers,
            ]
            await send_with_headers(
                {"type": "http.response.start", "status": refusal.status, "headers": pairs}
            )
            await send_with_headers({"type": "http.response.body", "body": refusal.body})

        return closed

    def _refusal(self, scope: Mapping[str, Any], headers: dict[str, str]) -> _Refusal | None:
        """Return the response to a request that may not see the page, else None.

        The token in the address is answered with a redirect that sets the cookie.
        """
        if not self._names.has_host(headers.get("host", "")):
            return _Refusal(421, b"another host")
        query = parse_qsl(scope["query_string"].decode("latin-1"))
        token = dict(query).get("token", "")
        if scope["method"] in ("GET", "HEAD") and _same(token, self.token):
            query = [pair for pair in query if pair[0] != "token"]
            rest = f"?{urlencode(query)}" if query else ""
            # Lax: a link in an alert or in Grafana opens a page. Requests of other sites' pages get no
            # cookie, nor do forms that they send.
            cookie = f"{self.cookie}={self._session}; Path=/; HttpOnly; SameSite=Lax"
            # After two slashes a browser would read the name of another host.
            location = f"/{quote(scope['path'].lstrip('/'))}{rest}"
            redirect = ((b"location", location.encode()), (b"set-cookie", cookie.encode()))
            return _Refusal(303, b"", redirect)
        if not _same(self._cookie_of(headers), self._session):
            return _Refusal(403, _CLOSED.encode())
        if scope["method"] not in ("GET", "HEAD") and not self._is_own(headers):
            return _Refusal(403, b"sent by another site")
        return None

    def _cookie_of(self, headers: dict[str, str]) -> str:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return ""
        return cookie.value if cookie is not None else ""

    def _is_own(self, headers: dict[str, str]) -> bool:
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return False
        origin = headers.get("origin")
        return origin is None or self._names.has_origin(origin)


def _same(text: str, secret: str) -> bool:
    return hmac.compare_digest(text.encode(), secret.encode())
