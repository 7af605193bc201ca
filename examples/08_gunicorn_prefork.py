"""Two gunicorn workers, forked from a process that had loaded the application: each evaluates what
it answers.

uv run python examples/08_gunicorn_prefork.py
"""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from agenteval_otel import accounting, configure, flush, monitor
from agenteval_otel.storage import JsonFileStorageProvider

# With --preload this runs once, before the fork. A worker begins with a thread, a queue and a file
# of its own.
configure(sample_rate=1.0, storage=[JsonFileStorageProvider(path="evaluations.jsonl")])


@monitor(agent="support")
def support(question: str) -> str:
    return f"Worker {os.getpid()} opened a ticket for {question}."


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [support(environ["QUERY_STRING"]).encode()]


def worker_exit(server: object, worker: object) -> None:
    """A hook of gunicorn's, only to show the figures: what is pending is delivered at exit anyway."""
    flush(2.0)
    print(f"worker {os.getpid()}: {accounting()['evaluated']} evaluated", flush=True)


def ask(client: httpx.Client, number: int) -> str:
    """The id of the worker that answered."""
    return client.get("/", params={"order": number}).text.split()[1]


if __name__ == "__main__":
    Path("evaluations.jsonl").unlink(missing_ok=True)  # of an earlier run: providers append
    # Yours is started by a shell: gunicorn --workers 2 --preload module:app. Here the listener is
    # handed over, so that requests wait in it until the workers are up.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, me = listener.getsockname()[1], Path(__file__).resolve()
        gunicorn = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "gunicorn",
                "--workers",
                "2",
                "--preload",
                "--bind",
                f"fd://{listener.fileno()}",
                "--config",
                f"python:{me.stem}",
                "--log-level",
                "warning",
                f"{me.stem}:app",
            ],
            pass_fds=[listener.fileno()],
            env={**os.environ, "PYTHONPATH": str(me.parent)},
        )
        answered: list[str] = []
        try:
            with (
                httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
                ThreadPoolExecutor(8) as pool,
            ):
                # until both workers had their share
                while len(set(answered)) < 2 and len(answered) < 2_000:
                    answered += pool.map(lambda number: ask(client, number), range(40))
        finally:
            gunicorn.terminate()
            gunicorn.wait(timeout=15)
    print(f"{len(answered)} answers from {len(set(answered))} workers")
    print(len(Path("evaluations.jsonl").read_text().splitlines()), "results in evaluations.jsonl")
