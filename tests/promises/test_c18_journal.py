"""C18: a cut-off, damaged or broken journal invents nothing, forgets nothing of others, and is
reported.
"""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from pathlib import Path

import grpc

from tests.promises.figures import Recorder, sized
from tests.promises.receiver import Receiver
from tests.promises.served import Served, new_trace_id, trace_request
from tests.promises.sidecars import QUICK, WAITS, answer, seen, wait_for_scores


def record(kind: int, payload: bytes, number: int) -> bytes:
    """A record as the journal once wrote them, with nothing in it that an outsider does not know."""
    checksum = zlib.crc32(payload, zlib.crc32(struct.pack(">BIQ", kind, len(payload), number)))
    return struct.pack(">4sBIQI", b"\xf7OTL", kind, len(payload), number, checksum) + payload


def with_bytes(body: bytes, hidden: bytes) -> bytes:
    """The request with these bytes in an attribute of its first span."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest.FromString(body)
    span = request.resource_spans[0].scope_spans[0].spans[0]
    span.attributes.add(key="hidden").value.bytes_value = hidden
    return request.SerializeToString()


def newest_segment(journal: Path) -> Path:
    return max(path for path in journal.iterdir() if path.name[0] == "0" and path.stat().st_size)


def cut_off(path: Path, count: int) -> None:
    with path.open("rb+") as file:
        file.truncate(path.stat().st_size - count)


def test_content_never_passes_for_records(
    tmp_path: Path, receiver: Receiver, promise: Recorder
) -> None:
    """A request hides a forged answer, a note that another trace is done, and a number that leaps;
    its write is cut off by a kill. The forged answer is not evaluated, the other one is, and the
    next request is taken.
    """
    journal = tmp_path / "journal"
    honest = {new_trace_id() for _ in range(3)}
    invented: set[int] = set()
    with Served(
        tmp_path, f"--durable={journal}", settings=WAITS, endpoint=receiver.endpoint
    ) as served:
        rounds = sized(2, 12)
        for cut in range(1, rounds + 1):
            for trace_id in honest:
                answer(served, trace_id)
            forged = new_trace_id()
            invented.add(forged)
            done = b"".join(
                struct.pack(">16s8sQ", trace_id.to_bytes(16), bytes(8), 2**40)
                for trace_id in honest
            )
            hidden = (
                record(1, trace_request(forged), 10**6)
                + record(3, done, 10**6)
                + record(1, trace_request(forged), 2**64 - 1)
                + b"x" * 200
            )
            assert served.post(with_bytes(trace_request(new_trace_id()), hidden)).status == 200
            served.kill()
            cut_off(newest_segment(journal), 10 * cut)
            served.start()
            statuses = {served.post(trace_request(new_trace_id())).status for _ in range(3)}
            assert statuses == {200}
        served.kill()
        served.settings.write_text(QUICK)
        served.start()
        wait_for_scores(served, receiver, honest)
        assert "journal_damaged" in served.told
        assert served.terminate() == 0
    assert invented.isdisjoint(seen(receiver))
    promise(
        "C18",
        figure=(
            f"{rounds} cut-off writes of a hostile request: 0 of {len(invented)} forged answers "
            f"evaluated, {len(honest)} of {len(honest)} others, 0 replies of 500"
        ),
    )


def health(served: Served) -> bytes:
    with grpc.insecure_channel(served.grpc) as channel:
        reply: bytes = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=10)
    return reply


def test_a_broken_journal_is_reported_and_recovers(tmp_path: Path, promise: Recorder) -> None:
    """The folder is removed while the sidecar runs: 503 and UNAVAILABLE, to be sent again; readiness
    and gRPC's health say so with a reason; with the folder back requests are taken without a restart.
    """
    journal = tmp_path / "journal"
    with Served(tmp_path, f"--durable={journal}", settings=WAITS) as served:
        answer(served)
        assert (served.get("/readyz").status, health(served)) == (200, b"\x08\x01")
        shutil.rmtree(journal)
        refused = served.post(trace_request(new_trace_id()))
        assert (refused.status, refused.headers.get("retry-after")) == (503, "2")
        code, error = served.export(trace_request(new_trace_id()))
        assert code == grpc.StatusCode.UNAVAILABLE
        assert "grpc-status-details-bin" in dict(error.trailing_metadata())
        ready = served.get("/readyz")
        assert ready.status == 503
        assert "journal cannot be written" in json.loads(ready.body)["reason"]
        assert health(served) == b"\x08\x02"
        assert served.get("/healthz").status == 200
        assert served.told.count("journal_failed") >= 1
        journal.mkdir(mode=0o700)
        served.wait_for(lambda: served.get("/readyz").status == 200, "readiness")
        answer(served)
        assert served.terminate() == 0
    promise(
        "C18",
        figure="folder gone: 503, UNAVAILABLE and not ready with a reason, ready again without a restart",
    )
