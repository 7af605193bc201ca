"""The shipped Collector while a backend is down, slow, refusing or restarted, and while it is
restarted itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from .collector import Collector
from .faults import LOOPBACK, PostHandler, black_hole, serving
from .fixtures import running
from .jaeger import Jaeger
from .loki import Loki
from .process import http_get
from .sdk import Sent, sdk_to, send_one_of_each
from .test_shipped_collector import LIMIT_S, event_of, shipped_to, trace_of

pytestmark = pytest.mark.backend


@contextmanager
def answering(status: int) -> Iterator[Any]:
    """An HTTP endpoint that answers every POST with its `status`, which may change; `taken` counts
    posts by status.
    """
    made = SimpleNamespace(status=status, endpoint="", taken=Counter())

    class Handler(PostHandler):
        def do_POST(self) -> None:
            self.body()
            status = made.status
            self.answer(status)
            made.taken[status] += 1

    with serving(Handler) as port:
        made.endpoint = f"http://{LOOPBACK}:{port}"
        yield made


@contextmanager
def with_logs_to(endpoint: str, binary: Path, jaeger: Jaeger, folder: Path) -> Iterator[Collector]:
    """The shipped Collector, whose traces go to Jaeger and whose events go there."""
    made = shipped_to(
        binary,
        folder / "collector",
        COLLECTOR_TRACES_ENDPOINT=jaeger.otlp_endpoint,
        COLLECTOR_LOGS_ENDPOINT=endpoint,
    )
    with running(made) as collector:
        yield collector


def wait_for_line(collector: Collector, words: str, folder: Path) -> None:
    log = folder / "collector" / "collector.log"
    collector.wait_for(lambda _: words in log.read_text(), LIMIT_S)


def send(collector: Collector, service: str) -> Sent:
    with sdk_to(collector, service=service) as sdk:
        return send_one_of_each(sdk)


def test_traces_and_events_outlive_a_restart_of_the_collector(
    collector_binary: Path, jaeger_binary: Path, loki_binary: Path, tmp_path: Path
) -> None:
    """Sent while neither Jaeger nor Loki is there, then the Collector is restarted: both come when
    they are back.
    """
    jaeger, loki = Jaeger(jaeger_binary, tmp_path / "jaeger"), Loki(loki_binary, tmp_path / "loki")
    collector = shipped_to(
        collector_binary,
        tmp_path / "collector",
        COLLECTOR_TRACES_ENDPOINT=jaeger.otlp_endpoint,
        COLLECTOR_LOGS_ENDPOINT=loki.otlp_endpoint,
    )
    with running(collector):
        sent = send(collector, "patient")
        collector.wait_for(lambda seen: "patient" in seen.scrape())
        assert http_get(collector.ports.health, "/")[0] == 200
        wait_for_line(collector, "Will retry", tmp_path)
        collector.stop()

        collector.start()
        with running(jaeger), running(loki):
            trace = trace_of(jaeger, sent)
            event = event_of(loki, "patient")

    assert len(trace.spans) == 1
    assert event.labels["trace_id"] == sent.trace_id


@pytest.mark.parametrize("status", [429, 503, 400])
def test_what_a_backend_refuses(
    collector_binary: Path, jaeger: Jaeger, tmp_path: Path, status: int
) -> None:
    """For now: tried until it is taken; for good: tried once and said in the log. What comes after
    it is delivered.
    """
    with (
        answering(status) as backend,
        with_logs_to(backend.endpoint, collector_binary, jaeger, tmp_path) as collector,
    ):
        sent = send(collector, f"refused-{status}")
        assert trace_of(jaeger, sent), "traces go their own way meanwhile"
        if status in (429, 503):
            collector.wait_for(lambda _: backend.taken[status] >= 2, LIMIT_S)
            backend.status = 200
        else:
            wait_for_line(collector, "Dropping data", tmp_path)
            assert backend.taken == {status: 1}
            backend.status = 200
            send(collector, f"right-{status}")
        collector.wait_for(lambda _: backend.taken[200], LIMIT_S)
    assert backend.taken[200] == 1


def test_a_backend_that_never_answers_delays_nobody_else(
    collector_binary: Path, jaeger: Jaeger, tmp_path: Path
) -> None:
    """Connections to the events' backend are made and stay without an answer: spans and metrics
    arrive all the same.
    """
    with (
        black_hole() as hole,
        with_logs_to(hole.endpoint, collector_binary, jaeger, tmp_path) as collector,
    ):
        sent = send(collector, "half-open")
        assert hole.wait_for_connection(LIMIT_S)
        assert trace_of(jaeger, sent)
        collector.wait_for(lambda seen: "half-open" in seen.scrape(), LIMIT_S)


@pytest.mark.parametrize("second", ["there", "away"])
def test_both_backends_for_traces_have_them(
    collector_binary: Path, jaeger: Jaeger, jaeger_binary: Path, tmp_path: Path, second: str
) -> None:
    """What goes to Tempo is the same OTLP: a second Jaeger in its place has the trace too; it may
    be away.
    """
    tempo = Jaeger(jaeger_binary, tmp_path / "second")
    collector = shipped_to(
        collector_binary,
        tmp_path / "collector",
        COLLECTOR_TRACES_TO="[otlp_grpc/jaeger, otlp_grpc/tempo]",
        COLLECTOR_LOGS_TO="[debug]",
        COLLECTOR_TRACES_ENDPOINT=jaeger.otlp_endpoint,
        COLLECTOR_TEMPO_ENDPOINT=tempo.otlp_endpoint,
    )
    with running(tempo) if second == "there" else nullcontext(), running(collector):
        sent = send(collector, f"twice-{second}")
        assert trace_of(jaeger, sent)
        assert second == "away" or trace_of(tempo, sent)
