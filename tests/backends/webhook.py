"""A receiver of alerts on a free port of the loopback interface: it keeps what Alertmanager posts."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple

from .faults import LOOPBACK


class PostedAlert(NamedTuple):
    """One alert of one post.

    Attributes:
        status: ``firing`` or ``resolved``.
        at: When the post came, in seconds since the epoch.
    """

    name: str
    status: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    at: float


class Webhook:
    """Keeps every alert that is posted to it; a context manager."""

    def __init__(self) -> None:
        self.alerts: list[PostedAlert] = []
        self._server = ThreadingHTTPServer((LOOPBACK, 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://{LOOPBACK}:{self._server.server_port}/alerts"

    def __enter__(self) -> Webhook:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5.0)

    def take(self, post: Mapping[str, Any]) -> None:
        """Keep the alerts of a post, as Alertmanager's webhook format has them."""
        now = time.time()
        self.alerts += [
            PostedAlert(item["labels"]["alertname"], item["status"], item["labels"], item["annotations"], now)
            for item in post["alerts"]
        ]

    def firing(self, **labels: str) -> list[PostedAlert]:
        return [
            alert for alert in self.alerts if alert.status == "firing" and labels.items() <= dict(alert.labels).items()
        ]


def _handler(webhook: Webhook) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            webhook.take(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Silent: the test says what came."""

    return Handler
