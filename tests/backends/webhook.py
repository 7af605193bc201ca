"""A receiver of alerts on a free port of the loopback interface: it keeps what Alertmanager posts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from .faults import LOOPBACK, PostHandler, serving


class PostedAlert(NamedTuple):
    """One alert of one post; its status is ``firing`` or ``resolved``."""

    name: str
    status: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    at: float


class Webhook:
    """Keeps every alert that is posted to it."""

    def __init__(self) -> None:
        self.alerts: list[PostedAlert] = []
        self.url = ""

    def firing(self, **labels: str) -> list[PostedAlert]:
        return [
            alert
            for alert in self.alerts
            if alert.status == "firing" and labels.items() <= dict(alert.labels).items()
        ]


@contextmanager
def webhook() -> Iterator[Webhook]:
    """A receiver of alerts, until the block ends."""
    made = Webhook()

    class Handler(PostHandler):
        def do_POST(self) -> None:
            for item in json.loads(self.body())["alerts"]:
                labels, annotations = item["labels"], item["annotations"]
                made.alerts.append(
                    PostedAlert(
                        labels["alertname"], item["status"], labels, annotations, time.time()
                    )
                )
            self.answer()

    with serving(Handler) as port:
        made.url = f"http://{LOOPBACK}:{port}/alerts"
        yield made
