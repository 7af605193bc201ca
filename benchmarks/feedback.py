"""The feedback endpoint of the sidecar, as a process on one core: requests over HTTP, each recorded
and stored.
"""

from __future__ import annotations

import http.client
import json
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.goals import at_least, holds
from benchmarks.harness import Bench, Figure, Numbers, Phase, Size, standalone
from benchmarks.sidecar import Sidecar

__all__ = ["BENCH"]

_CLIENTS = 8
_TOKEN = "benchmark-0123456789"
Body = Callable[[int], dict[str, Any]]


def _client(url: str, first: int, body: Body, until_s: float, answers: list[int]) -> None:
    """Send one request after the other over one connection, and keep the answers' status."""
    connection = http.client.HTTPConnection(url.rpartition("/")[2], timeout=30)
    headers = {"authorization": f"Bearer {_TOKEN}", "content-type": "application/json"}
    while time.monotonic() < until_s:
        text = json.dumps(body(first + len(answers)))
        connection.request("POST", "/v1/feedback", text, headers)
        reply = connection.getresponse()
        reply.read()
        answers.append(reply.status)
        if reply.status == 429:  # its connection is closed
            connection.close()
            time.sleep(0.05)


def _load(url: str, body: Body, seconds: float, first: int = 0) -> list[int]:
    """The status of every answer; the same feedback again would not be recorded: `first` is the
    first one's number.
    """
    answers: list[list[int]] = [[] for _ in range(_CLIENTS)]
    until_s = time.monotonic() + seconds
    threads = [
        threading.Thread(
            target=_client, args=(url, first + number * 10_000_000, body, until_s, each)
        )
        for number, each in enumerate(answers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [status for each in answers for status in each]


def _measured(body: Body, size: Size) -> Numbers:
    """Requests a second that are taken, where eight clients always have another one; each is in
    storage in the end.
    """
    with tempfile.TemporaryDirectory() as folder:
        cores, stored = os.sched_getaffinity(0), Path(folder, "results.jsonl")
        settings = {
            "storage": [{"type": "json_file", "path": str(stored)}],
            "telemetry": {"signals": []},
            "sidecar": {"grpc_port": 0, "http_port": 0, "token": _TOKEN},
        }
        sidecar = Sidecar(Path(folder), "", max(cores), settings)
        os.sched_setaffinity(0, {min(cores)})
        taken = _load(sidecar.url, body, 1.0).count(202)  # the first ones load what is needed
        began, cpu_s = time.monotonic(), sidecar.cpu_s()
        answers = Counter(_load(sidecar.url, body, size.of(2, 10), 1_000_000))
        took_s, used_s = time.monotonic() - began, sidecar.cpu_s() - cpu_s
        memory_mb, printed = sidecar.memory_mb(), sidecar.stop()
        recorded = sum(len(json.loads(line)["results"]) for line in stored.read_text().splitlines())
    first: Any = body(0)
    # A list that was refused may have been taken in part: its sender sends it again.
    lost = max(
        0, (taken + answers[202]) * (len(first) if isinstance(first, list) else 1) - recorded
    )
    assert set(answers) <= {202, 429}, f"{answers}; {printed}"
    return {
        "per s": answers[202] / took_s,
        "us": used_s / max(1, answers[202]) * 1e6,
        "refused": float(answers[429]),
        "lost": float(lost),
        "MB": memory_mb,
    }


def _thumb(number: int) -> dict[str, Any]:
    return {
        "trace_id": f"{number + 1:032x}",
        "span_id": f"{number + 1:016x}",
        "thumbs": "down",
        "user_id": str(number),
    }


def _list(number: int) -> Any:
    return [_thumb(number * 20 + place) for place in range(20)]


_BODIES: dict[str, Body] = {"one in a request": _thumb, "20 in a request": _list}


def _figures(measured: dict[str, Numbers]) -> list[Figure]:
    figures = []
    for name in _BODIES:
        row = measured[f"{name}:ours"]
        goal = at_least(row["per s"], 500) if name == "one in a request" else None
        figures += [
            Figure(f"{name}: requests taken", "1/s", {"ours": row["per s"]}, goal),
            Figure("the same: CPU time of a request", "us", {"ours": row["us"]}),
            Figure("the same: refused, to be sent again", "requests", {"ours": row["refused"]}),
            Figure(
                "the same: taken and not stored",
                "pieces",
                {"ours": row["lost"]},
                holds("0", row["lost"] == 0),
            ),
            Figure("the same: memory", "MB", {"ours": row["MB"]}),
        ]
    return figures


BENCH = Bench(
    "feedback",
    "Feedback: POST /v1/feedback of the sidecar, on one core",
    tuple(
        Phase(name, "ours", lambda size, body=body: _measured(body, size))
        for name, body in _BODIES.items()
    ),
    _figures,
    notes=(
        "Feedback: eight clients on the other core, each with one connection and no pause; results go into a file.",
    ),
)

if __name__ == "__main__":
    standalone(BENCH)
