"""Which requests the sidecar takes: those with its token, or of programs on its own machine."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from agenteval_otel.capture.otlp.body import Refusal
from agenteval_otel.config.process import default_pipeline
from agenteval_otel.config.sidecar import SidecarSettings
from agenteval_otel.runtime.local_names import LocalNames
from agenteval_otel.runtime.log import log

_OF_A_PAGE: Final = Refusal(
    403, "not from a page in a browser: send it from a program, or set sidecar.token"
)
_FOREIGN_HOST: Final = Refusal(
    421, "Host: expected localhost or an address. Other names belong into sidecar.host_names"
)


class RequestAccess:
    """Decides before a body is read whether a request is taken.

    A request without refusal is authenticated, so that the code behind may rely on it. Its sender
    knows the token or has a client certificate. Where neither is demanded, the sidecar listens on
    the loopback alone, and the sender is a program on this machine and no page in a browser.
    """

    def __init__(self, settings: SidecarSettings) -> None:
        self._token = None if settings.token is None else f"Bearer {settings.token}".encode()
        self._names = LocalNames((settings.host, *settings.host_names))
        self._has_certificates = settings.client_ca is not None

    def __repr__(self) -> str:
        return f"<RequestAccess {'by token' if self._token is not None else 'without token'}>"

    def has_token(self, authorization: bytes) -> bool:
        """Tell whether the header `Authorization` holds the token.

        The result is True if none is demanded.
        """
        return self._token is None or hmac.compare_digest(authorization, self._token)

    def refusal(self, headers: Mapping[bytes, bytes]) -> Refusal | None:
        """Return why a request over HTTP is refused, or None. gRPC needs only `has_token`.

        A browser cannot reach gRPC unnoticed. It speaks HTTP/2 only over TLS, where the certificate
        does not cover a foreign name. It asks first before it sends gRPC's content type to another
        site.
        """
        if self._token is not None:
            if self.has_token(headers.get(b"authorization", b"")):
                return None
            return Refusal(401, "send Authorization: Bearer TOKEN")
        # A browser adds this header to every POST of a page, and programs send none.
        if b"origin" in headers:
            return counted("page", _OF_A_PAGE)
        host = headers.get(b"host")
        # With client certificates other machines connect too, by any name of this one. Without
        # a header it is no browser.
        if host is None or self._has_certificates or self._names.has_host(host.decode("latin-1")):
            return None
        return counted("host", _FOREIGN_HOST)


def counted(reason: str, refusal: Refusal) -> Refusal:
    """Count and log a refusal, and return it."""
    default_pipeline().accounting.fail(f"requests:{reason}")
    log.warning("request_refused", part=reason, status=refusal.status)
    return refusal
