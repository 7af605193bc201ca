"""C10: what the sidecar acknowledged is evaluated, killed or not; what it cannot take it refuses,
to be sent again.
"""

from __future__ import annotations

import random
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from agenteval_otel.testing import ModelServer
from tests.promises.figures import FULL, Recorder, sized
from tests.promises.receiver import Receiver
from tests.promises.served import Served, new_trace_id, trace_request
from tests.promises.sidecars import (
    MIB,
    QUICK,
    WAITS,
    answer,
    seen,
    settings_with,
    wait_for_scores,
)


def fill(served: Served, most: int = 10_000, **request: Any) -> tuple[set[int], Any]:
    """Send a trace after the other until there is no room; the acknowledged ones, and the refusal."""
    acknowledged: set[int] = set()
    for _ in range(most):
        trace_id = new_trace_id()
        reply = served.post(trace_request(trace_id, **request))
        if reply.status != 200:
            return acknowledged, reply
        acknowledged.add(trace_id)
    raise AssertionError("never full")


def test_without_room_clients_are_asked_to_try_again(
    tmp_path: Path, receiver: Receiver, promise: Recorder
) -> None:
    """429 with Retry-After, RESOURCE_EXHAUSTED with RetryInfo, not ready; and what was acknowledged
    is evaluated.
    """
    few = settings_with(quiet_s=60, parent_wait_s=60, max_waiting_bytes=MIB)
    with Served(tmp_path, settings=few, endpoint=receiver.endpoint) as served:
        acknowledged, refusal = fill(served, text="x" * 10_000)
        assert (refusal.status, refusal.headers["retry-after"]) == (429, "2")
        code, error = served.export(trace_request(new_trace_id(), text="x" * 10_000))
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        status = status_pb2.Status.FromString(
            dict(error.trailing_metadata())["grpc-status-details-bin"]
        )
        retry = error_details_pb2.RetryInfo()
        assert status.details[0].Unpack(retry)
        assert retry.retry_delay.seconds == 2
        assert served.get("/readyz").status == 503
        assert served.get("/healthz").status == 200
        assert served.terminate() == 0
        assert "spans_refused" in served.told
        assert served.outcomes() == {"evaluated": len(acknowledged)}
        spans = served.outcomes("span")
        assert spans.pop("refused") >= 2
        assert spans == {"read": len(acknowledged)}
    assert set(seen(receiver)) == acknowledged
    promise(
        "C10", figure="memory full: 429, RESOURCE_EXHAUSTED, all that was acknowledged evaluated"
    )


def test_a_request_that_never_fits_is_not_asked_for_again(tmp_path: Path) -> None:
    """413 and no RetryInfo: a client that sent it again and again would hold up all that it has
    behind it.
    """
    small = settings_with(
        max_waiting_bytes=MIB, durable=tmp_path / "journal", durable_max_bytes=2 * MIB
    )
    with Served(tmp_path, settings=small) as served:
        for size in (MIB, 3 * MIB):
            request = trace_request(new_trace_id(), text="x" * size)
            assert served.post(request).status == 413
            code, error = served.export(request)
            assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "grpc-status-details-bin" not in dict(error.trailing_metadata())
        answer(served)


def test_records_without_ids_are_rejected_alone(tmp_path: Path) -> None:
    """The others of the request are taken, and the reply says how many were not: a partial success."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    with Served(tmp_path, settings=QUICK) as served:
        reply = served.post(trace_request(new_trace_id(), 0, new_trace_id()))
        response = ExportTraceServiceResponse.FromString(reply.body)
        assert (reply.status, response.partial_success.rejected_spans) == (200, 1)
        assert served.terminate() == 0
        assert served.outcomes() == {"evaluated": 2}


@contextmanager
def small_disk(folder: Path, size_mb: int) -> Iterator[bool]:
    """A file system of this size in the folder; False where none may be mounted."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    try:
        yield mounted.returncode == 0
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_refuses_and_loses_nothing(
    tmp_path: Path, receiver: Receiver, promise: Recorder
) -> None:
    """What was acknowledged before survives a kill; with room again requests are taken, without a
    restart.
    """
    with small_disk(tmp_path / "disk", 4) as mounted:
        most = 1024 * MIB if mounted else 4 * MIB
        slow = settings_with(
            quiet_s=60,
            parent_wait_s=60,
            durable=tmp_path / "disk" / "journal",
            durable_max_bytes=most,
        )
        with Served(tmp_path, settings=slow, endpoint=receiver.endpoint) as served:
            if mounted:
                (tmp_path / "disk" / "other").write_bytes(b"x" * MIB)
            first, refusal = fill(served, text="x" * 50_000)
            assert (refusal.status, refusal.headers["retry-after"]) == (429, "2")
            if mounted:
                (tmp_path / "disk" / "other").unlink()
                second, refusal = fill(served, text="x" * 50_000)
                assert len(second) >= 10
                assert "journal_failed" in served.told
            served.kill()
            served.settings.write_text(slow.replace("60", "0.2"))
            served.start()
            acknowledged = first | (second if mounted else set())
            wait_for_scores(served, receiver, acknowledged)
            served.wait_for(
                lambda: served.post(trace_request(new_trace_id())).status == 200, "room on the disk"
            )
            assert served.terminate() == 0
    how = "full file system" if mounted else "full by durable_max_bytes"
    promise(
        "C10",
        figure=f"{how}: 429; killed while full: {len(acknowledged)} of {len(acknowledged)} evaluated",
    )


def named(trace_id: int) -> str:
    """A word of letters alone, which no redactor takes for a number."""
    return " answer-" + f"{trace_id:032x}".translate(str.maketrans("0123456789", "ghijklmnop"))


class Load:
    """Clients that send traces over HTTP and gRPC, with a pause or without; `acknowledged` has
    those that got their 200.

    Each answer's text ends with its trace's id.
    """

    def __init__(self, served: Served, threads: int = 4, *, pause_s: float = 0.0) -> None:
        self._served, self._stop, self._pause_s = served, threading.Event(), pause_s
        self.acknowledged: set[int] = set()
        self._threads = [
            threading.Thread(target=self._run, args=(at,), daemon=True) for at in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> set[int]:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        return self.acknowledged

    def _run(self, number: int) -> None:
        chance = random.Random(number)
        while not self._stop.wait(self._pause_s):
            several = chance.randint(1, 5) if not self._pause_s else 1
            trace_ids = [new_trace_id() for _ in range(several)]
            text = "At nine. " * chance.randint(1, 300) + named(trace_ids[0])
            request = trace_request(*trace_ids, text=text)
            with suppress(OSError, grpc.RpcError, AssertionError, ValueError):
                if number % 2:
                    taken = self._served.export(request, timeout_s=10)[0] == grpc.StatusCode.OK
                else:
                    taken = self._served.post(request, timeout_s=10).status == 200
                if taken:
                    self.acknowledged.update(trace_ids)


def killed_under_load(
    served: Served, kills: int, lives_s: tuple[float, float], **load: Any
) -> set[int]:
    """Kill it so often, each time after a random life under load; what it has acknowledged."""
    chance = random.Random(7)
    acknowledged: set[int] = set()
    for _ in range(kills):
        clients = Load(served, **load)
        threading.Event().wait(chance.uniform(*lives_s))
        served.kill()
        acknowledged |= clients.end()
        served.start()
    return acknowledged


@pytest.mark.sized
def test_a_kill_loses_nothing_that_was_acknowledged(
    tmp_path: Path, receiver: Receiver, promise: Recorder
) -> None:
    """Killed at random moments under load, with --durable: after the restart each 200 is evaluated."""
    kills, journal = sized(3, 20), tmp_path / "journal"
    served = Served(tmp_path, f"--durable={journal}", settings=QUICK, endpoint=receiver.endpoint)
    with served:
        acknowledged = killed_under_load(served, kills, (0.3, 1.5))
        wait_for_scores(served, receiver, acknowledged)
        served.wait_for(lambda: size_of(journal) < 100_000, "an empty journal")
        assert served.terminate() == 0
    counted = seen(receiver)
    lost = acknowledged - set(counted)
    twice = sum(counted[trace_id] > 1 for trace_id in acknowledged)
    promise(
        "C10",
        figure=(
            f"{kills} kills under load: {len(acknowledged)} acknowledged, {len(lost)} lost, "
            f"{twice / max(1, len(acknowledged)):.0%} scored again after a kill, "
            f"none more than {max(counted.values())} times"
        ),
    )
    assert len(acknowledged) > 10 * kills
    assert lost == set()
    assert max(counted.values()) <= 3


JUDGED = """
sample_rate: 1.0
sidecar: {quiet_s: 0.2, parent_wait_s: 1.0}
load_shedding: {enabled: false}
evaluators:
  - type: LLMJudge
    criterion_name: polite
    description: Is the answer polite?
    judge: {type: openai_compatible, model: m, base_url: "URL/v1", max_retries: 0}
"""
VERDICT = '{"evidence": [], "reason": "as asked", "score": true}'
MOST_CALLS = 1.1 if FULL else 1.3
"""For each answer; of three lives the first is a third, and starts at full speed."""


@pytest.mark.sized
def test_a_loop_of_kills_does_not_pay_the_judge_again(
    tmp_path: Path, receiver: Receiver, promise: Recorder
) -> None:
    """What was exported is not judged again, and no answer is judged more than three times."""
    kills = sized(3, 20)
    judged: Counter[str] = Counter()
    judged_lock = threading.Lock()

    def verdict(body: dict[str, Any]) -> str:
        (answer,) = set(re.findall(r"answer-([a-p]{32})", str(body)))
        with judged_lock:
            judged[answer] += 1
        return VERDICT

    journal = tmp_path / "journal"
    with ModelServer([verdict]) as judge:
        settings = JUDGED.replace("URL", judge.url)
        served = Served(
            tmp_path, f"--durable={journal}", settings=settings, endpoint=receiver.endpoint
        )
        with served:
            acknowledged = killed_under_load(served, kills, (0.5, 2.5), threads=2, pause_s=0.04)
            wait_for_scores(served, receiver, acknowledged, 120)
            assert served.terminate() == 0
    calls = judged.total() / len(judged)
    promise(
        "C10",
        figure=(
            f"{kills} kills with a judge: {len(acknowledged)} acknowledged, 0 lost, "
            f"{calls:.2f} judge calls an answer, at most {max(judged.values())}"
        ),
    )
    assert len(acknowledged) > 10 * kills
    assert calls <= MOST_CALLS
    assert max(judged.values()) <= 3


def size_of(folder: Path) -> int:
    """The bytes of the requests in a journal: beside them are its key, its lock and its notes."""
    sizes = []
    for file in folder.glob("*.requests"):
        with suppress(FileNotFoundError):  # a segment that has just gone
            sizes.append(file.stat().st_size)
    return sum(sizes)


def test_restarts_in_a_loop_neither_lose_nor_grow(
    tmp_path: Path, receiver: Receiver, promise: Recorder
) -> None:
    """Killed again and again before it has read what it left: the folder keeps its size, and
    nothing is lost.
    """
    journal = tmp_path / "journal"
    with Served(
        tmp_path, f"--durable={journal}", settings=WAITS, endpoint=receiver.endpoint
    ) as served:
        acknowledged = {answer(served, text="x" * 3_000) for _ in range(500)}
        size = size_of(journal)
        for _ in range(sized(2, 10)):
            served.kill()
            served.start(until="telemetry")
        served.kill()
        assert size_of(journal) == size
        served.settings.write_text(QUICK)
        served.start()
        wait_for_scores(served, receiver, acknowledged)
        served.wait_for(lambda: size_of(journal) == 0, "an empty journal")
        assert served.terminate() == 0
    assert seen(receiver) == dict.fromkeys(acknowledged, 1)
    promise(
        "C10",
        figure=f"{sized(3, 11)} restarts before anything was evaluated: folder constant, 500 of 500 evaluated once",
    )


def test_more_than_fits_into_memory_is_read_again(tmp_path: Path, receiver: Receiver) -> None:
    """What an earlier process left is evaluated piece by piece, and a kill in the middle costs
    nothing.
    """
    journal = tmp_path / "journal"
    large = settings_with(quiet_s=60, parent_wait_s=60, max_waiting_bytes=64 * MIB)
    with Served(
        tmp_path, f"--durable={journal}", settings=large, endpoint=receiver.endpoint
    ) as served:
        acknowledged = {answer(served, text="x" * 50_000) for _ in range(200)}
        served.kill()
        served.settings.write_text(
            settings_with(quiet_s=0.3, parent_wait_s=0.3, max_waiting_bytes=MIB)
        )
        served.start(until="telemetry")
        served.wait_for(lambda: len(seen(receiver)) >= 40, "some scores")
        served.kill()
        served.start()
        wait_for_scores(served, receiver, acknowledged)
        assert served.terminate() == 0


def test_the_receiver_of_scores_may_be_away(
    tmp_path: Path, receiver: Receiver, promise: Recorder
) -> None:
    """The journal keeps what is not exported, up to its limit; then clients are refused, until the
    receiver is back.
    """
    journal = tmp_path / "journal"
    bounded = settings_with(
        quiet_s=0.2, parent_wait_s=0.2, durable=journal, durable_max_bytes=2 * MIB
    )
    receiver.reply = receiver.reply._replace(status=503)
    with Served(tmp_path, settings=bounded, endpoint=receiver.endpoint) as served:
        acknowledged, refusal = fill(served, text="x" * 20_000)
        assert refusal.status == 429
        assert 1.5 * MIB < size_of(journal) <= 2.1 * MIB
        served.kill()
        for bodies in receiver.bodies.values():
            bodies.clear()
        receiver.reply = receiver.reply._replace(status=200)
        served.start()
        wait_for_scores(served, receiver, acknowledged)
        served.wait_for(lambda: size_of(journal) == 0, "an empty journal", 60)
        answer(served)
        assert served.terminate() == 0
    promise(
        "C10",
        figure=f"no receiver of scores: refused at the limit; killed and well again: {len(acknowledged)} kept",
    )


def test_one_folder_is_for_one_process(tmp_path: Path) -> None:
    """The second ends with exit code 2 and says why; files of others in the folder stay as they
    are.
    """
    journal = tmp_path / "journal"
    with Served(tmp_path / "a", f"--durable={journal}", settings=QUICK) as served:
        foreign = {
            "notes.otlp": b"x",
            "0000000000000001.txt": b"y",
            "README": b"z",
            "zzzzzzzzzzzzzzzz.otlp": b"!",
        }
        for name, data in foreign.items():
            (journal / name).write_bytes(data)
        second = Served(tmp_path / "b", f"--durable={journal}", settings=QUICK)
        with pytest.raises(AssertionError, match="another process uses it"):
            second.start()
        assert second.process.returncode == 2
        served.kill()
        served.start()
        answer(served)
        assert served.terminate() == 0
    assert {name: (journal / name).read_bytes() for name in foreign} == foreign


def test_a_stop_takes_as_long_as_it_may(tmp_path: Path, hole: Any) -> None:
    """With a receiver that never answers SIGTERM ends within `drain_s`, says so, and the journal
    keeps the answers.
    """
    journal = tmp_path / "journal"
    with Served(
        tmp_path,
        f"--durable={journal}",
        settings=settings_with(quiet_s=0.1, drain_s=2.0),
        endpoint=hole.endpoint,
    ) as served:
        for _ in range(20):
            answer(served)
        began = time.monotonic()
        assert served.terminate() == 0
        assert time.monotonic() - began < 15
        assert "not everything was delivered" in served.printed
    assert size_of(journal) > 1_000
