"""Four writers of one place, killed at random moments: what they were told is saved, and how often they were killed.

The writers are forked from a program that has everything loaded, so a hundred of them take seconds. Each tells the
number of a result after its save came back; what it had told before it was killed is read to the end.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from tests.promises.programs import run_program

_PROGRAM = """
    import asyncio, json, os, random, selectors, signal, sys, time
    from agenteval_otel.errors import StorageError
    from agenteval_otel.models import AggregatedEvaluationResult, EvaluationResult
    from agenteval_otel.storage import EvaluationStorageProvider
    from agenteval_otel.components.loading import resolve
    options, kills, longest, seed = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    if options["type"] == "sql":
        from agenteval_otel.storage import sql_database
    chance = random.Random(seed)

    def write(tells, number, seed):
        own, storage = random.Random(seed), resolve(EvaluationStorageProvider, options)

        async def one(count):
            name = f"{number}-{count}"
            text = "x" * int(200 * (longest / 200) ** own.random())
            result = EvaluationResult(criterion_name="c", score=0.5, evaluator_type="T", reasoning=text)
            given = AggregatedEvaluationResult(response_id=name, results=(result, result), agent="agent")
            try:
                await storage.save_result(given)
            except StorageError:
                return  # counted by a pipeline; here it is not told
            os.write(tells, (name + "\\n").encode())

        async def work():
            count = 0
            while True:
                await asyncio.gather(*(one(count + at) for at in range(3)))
                count += 3

        asyncio.run(work())

    started, told, writers, killed = 0, [], {}, 0
    selector = selectors.DefaultSelector()

    def start():
        global started
        started += 1
        reads, tells = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reads)
                write(tells, started, seed * 100_000 + started)
            finally:
                os._exit(1)
        os.close(tells)
        selector.register(reads, selectors.EVENT_READ, pid)
        writers[pid] = (reads, [])

    def listen(seconds):
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                writers[key.data][1].append(os.read(key.fd, 65536))

    def kill(pid):
        os.kill(pid, signal.SIGKILL)
        reads, parts = writers.pop(pid)
        selector.unregister(reads)
        while part := os.read(reads, 65536):
            parts.append(part)
        os.close(reads)
        status = os.waitpid(pid, 0)[1]
        assert os.WTERMSIG(status) == signal.SIGKILL, status
        told.extend(b"".join(parts).decode().split())

    for _ in range(4):
        start()
    listen(0.5)
    while killed < kills:
        listen(chance.uniform(0.0, 0.15))
        kill(chance.choice(list(writers)))
        killed += 1
        if killed < kills:
            start()
    listen(0.3)
    for pid in list(writers):
        kill(pid)
        killed += 1
    print("report", json.dumps({"told": told, "killed": killed}))
"""


class Killed(NamedTuple):
    told: list[str]
    killed: int
    stderr: str


def killed_writers(options: dict[str, object], *, kills: int, longest: int, folder: Path, seed: int = 1) -> Killed:
    """Run the writers with a storage provider of these options until so many were killed."""
    assert folder.is_dir()
    finished = run_program(
        _PROGRAM, json.dumps(options), str(kills), str(longest), str(seed), timeout_s=60.0 + kills * 2.0
    )
    assert finished.code == 0, finished.stderr
    report = json.loads(finished.lines("report")[0])
    return Killed(report["told"], report["killed"], finished.stderr)
