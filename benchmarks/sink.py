"""An OTLP/HTTP endpoint on loopback, in a process of its own, that takes everything and says so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.harness import ROOT, clean_environment

__all__ = ["endpoint"]


@contextmanager
def endpoint() -> Iterator[str]:
    """Its address, for as long as the block runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.sink"], cwd=ROOT, env=clean_environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


class _Taken(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


if __name__ == "__main__":
    os.nice(10)  # stands for a collector on another machine
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Taken)
    print(server.server_address[1], flush=True)
    server.serve_forever()
