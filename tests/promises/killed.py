"""Four writers of one place, killed at random moments: what was reported as saved, and how often
they were killed.

They are forked from a program that has everything loaded. Each reports the number of a result after
its save came back.
"""

from __future__ import annotations

import json
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

    def write(reports, number, seed):
        own, storage = random.Random(seed), resolve(EvaluationStorageProvider, options)

        async def save(count):
            name = f"{number}-{count}"
            text = "x" * int(200 * (longest / 200) ** own.random())
            result = EvaluationResult(criterion_name="c", score=0.5, evaluator_type="T", reasoning=text)
            aggregated = AggregatedEvaluationResult(response_id=name, results=(result, result), agent="agent")
            try:
                await storage.save_result(aggregated)
            except StorageError:
                return  # counted by a pipeline; here it is not reported
            os.write(reports, (name + "\\n").encode())

        async def work():
            count = 0
            while True:
                await asyncio.gather(*(save(count + at) for at in range(3)))
                count += 3

        asyncio.run(work())

    started, saved, writers, killed = 0, [], {}, 0
    selector = selectors.DefaultSelector()

    def start():
        global started
        started += 1
        reads, reports = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reads)
                write(reports, started, seed * 100_000 + started)
            finally:
                os._exit(1)
        os.close(reports)
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
        saved.extend(b"".join(parts).decode().split())

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
    print("report", json.dumps([saved, killed]))
"""


class Killed(NamedTuple):
    saved: list[str]
    killed: int


def killed_writers(options: dict[str, object], *, kills: int, longest: int) -> Killed:
    """Run the writers with a storage provider of these options until so many were killed."""
    arguments = (json.dumps(options), str(kills), str(longest), "1")
    return Killed(*run_program(_PROGRAM, *arguments, timeout_s=60.0 + kills * 2.0).report())
