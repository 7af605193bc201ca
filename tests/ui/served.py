"""`agenteval-otel ui` as a process of its own, and clients of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.backends.process import bare_environment

ROOT = Path(__file__).resolve().parents[2]
END_LIMIT_S = 20.0


@contextmanager
def served(*arguments: Path | str) -> Iterator[str]:
    """The address with its token, of places and options, until the block ends; on SIGTERM it ends
    with exit code 0.
    """
    command = [
        sys.executable,
        "-m",
        "agenteval_otel",
        "ui",
        *map(str, arguments),
        "--port",
        "0",
        "--no-open",
    ]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=bare_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        opened = next((line for line in process.stdout if line.startswith("open ")), None)
        assert opened is not None, process.stderr.read() if process.stderr else ""
        address = opened.split()[1]
        yield address
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=END_LIMIT_S)
        assert "Traceback" not in errors, errors
        assert process.returncode == 0, errors


@contextmanager
def client_of(address: str) -> Iterator[httpx.Client]:
    """A client that has exchanged the token for the cookie."""
    parts = urlsplit(address)
    with httpx.Client(
        base_url=f"http://{parts.netloc}", follow_redirects=True, timeout=30.0
    ) as client:
        assert client.get(address).status_code == 200
        yield client


class Structure(HTMLParser):
    """What a page is made of, without its text: tags with the names of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(" ".join([tag, *(name for name, _ in attrs)]))

    def handle_data(self, data: str) -> None:
        self.text += data
