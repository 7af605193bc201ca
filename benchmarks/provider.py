"""A model provider on loopback, in a process of its own: answers every question the same way, after
a while.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from benchmarks.harness import ROOT, clean_environment

__all__ = ["ANSWER", "provider"]

ANSWER = json.dumps(
    {"evidence": ["Paris"], "reason": "It names the city and says why.", "score": 4}
)
_MESSAGE = json.dumps(
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "judge-1",
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "content": [{"type": "text", "text": ANSWER}],
        "usage": {"input_tokens": 700, "output_tokens": 40},
    }
).encode()
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(
    _MESSAGE
)


@contextmanager
def provider(delay_s: float) -> Iterator[str]:
    """Its address, for as long as the block runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.provider", str(delay_s)],
        cwd=ROOT,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


class _Connection(asyncio.Protocol):
    """Only so much HTTP as the clients speak: what it uses of the machine is none of those who are
    measured.
    """

    def __init__(self, delay_s: float) -> None:
        self._delay_s, self._held = delay_s, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._held += data
        while (end := self._held.find(b"\r\n\r\n")) >= 0:
            head = self._held[:end].lower().partition(b"content-length:")[2]
            whole = end + 4 + int(head.split(b"\r\n", 1)[0] or 0)
            if len(self._held) < whole:
                return
            self._held = self._held[whole:]
            asyncio.get_running_loop().call_later(self._delay_s, self._answer)

    def _answer(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(_HEAD + _MESSAGE)


async def _serve(delay_s: float) -> None:
    server = await asyncio.get_running_loop().create_server(
        partial(_Connection, delay_s), "127.0.0.1", 0
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))
