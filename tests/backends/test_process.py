"""What the harnesses share: start, ports, health, stop. A small web server stands in for the built programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .faults import refused_port
from .fixtures import running
from .process import BackendError, BackendProcess, Ports

SERVER = """
import http.server, sys

class Page(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/" else 404)
        self.end_headers()
        self.wfile.write(b'{"asked": "%s"}' % self.path.encode())

print("here", flush=True)
try:
    server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Page)
except OSError:
    raise SystemExit("listen: address already in use")
server.serve_forever()
"""


@dataclass(frozen=True)
class PagePorts(Ports):
    """Where the page is."""

    web: int


class Page(BackendProcess):
    """The stand-in, with a script that may be another."""

    title = "the page"
    ports_type = PagePorts
    ports: PagePorts
    script = SERVER

    def ask(self, path: str) -> str:
        return self._get_json(self.ports.web, path)["asked"]

    def _arguments(self) -> list[str]:
        return ["-c", self.script, str(self.ports.web)]

    def _health(self) -> tuple[int, str]:
        return self.ports.web, "/"


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    made = Page(Path(sys.executable), tmp_path)
    yield made
    made.stop()


def test_it_starts_answers_and_stops(page: Page) -> None:
    """A started program is healthy and answers; a stopped one is gone, and comes back on its port."""
    with running(page):
        port = page.ports.web
        assert page.ask("/") == "/"
        assert "Page(running, PagePorts(web=" in repr(page)
    assert not page.running
    assert page.start().ports.web == port


def test_another_port_is_tried_when_one_was_snatched(page: Page) -> None:
    """A port that somebody took in the meantime costs one try and no test."""
    with refused_port() as taken:
        page.ports = PagePorts(taken)
        assert page.start().ports.web != taken


def test_a_program_that_ends_is_reported_with_its_log(page: Page) -> None:
    """A program that ends while it starts leaves a message with the end of its log, and no process."""
    page.script = "raise SystemExit('no such option')"
    with pytest.raises(BackendError, match=r"(?s)the page ended while starting; end of its log:.*no such option"):
        page.start()
    assert not page.running


def test_a_refused_question_is_reported_with_the_answer(page: Page) -> None:
    """A status that is not 200 is an error that holds the body and the log."""
    page.start()
    with pytest.raises(BackendError, match=r"(?s)the page gave status 404 for /other: .*asked.*here"):
        page.ask("/other")


def test_waiting_for_a_program_that_is_gone_ends_at_once(page: Page) -> None:
    """Nobody waits for what a stopped program will never show."""
    with pytest.raises(BackendError, match="the page is not running"):
        page.wait_for(lambda seen: None)
