"""The sidecar's process: signals, its settings file, its own log, from start to end."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from tests.backends.faults import refused_port
from tests.promises.receiver import Receiver
from tests.promises.served import SETTINGS, Served, new_trace_id, trace_request

QUICK = SETTINGS + "sidecar: {quiet_s: 0.1, parent_wait_s: 0.2}\n"
OTHER = QUICK.replace("ResponseHealth", "{type: ResponseHealth, criterion_name: other}")
CANARY = "canary-4711-of-a-conversation"


def ask(served: Served) -> None:
    assert served.post(trace_request(new_trace_id())).status == 200


@pytest.fixture
def receiver() -> object:
    with Receiver() as well:
        yield well


def names(receiver: Receiver) -> set[str]:
    return {
        pair.value.string_value
        for record in receiver.events()
        for pair in record.attributes
        if pair.key == "gen_ai.evaluation.name"
    }


def through_a_link(folder: Path) -> Callable[[str], None]:
    """A settings file as a ConfigMap mounts it: a link to a link to a folder, and the one in the
    middle is swapped.
    """
    versions = iter(range(100))

    def write(text: str) -> None:
        version = folder / f"..version-{next(versions)}"
        version.mkdir()
        (version / "agenteval.yaml").write_text(text)
        fresh = folder / "..fresh"
        fresh.symlink_to(version.name)
        fresh.replace(folder / "..data")
        if not (folder / "agenteval.yaml").is_symlink():
            (folder / "agenteval.yaml").unlink(missing_ok=True)
            (folder / "agenteval.yaml").symlink_to("..data/agenteval.yaml")

    return write


@pytest.mark.parametrize("mounted", [False, True])
def test_settings_are_in_force_within_seconds(
    mounted: bool, tmp_path: Path, receiver: Receiver
) -> None:
    """Written in place or swapped by a link as a ConfigMap is; wrong, gone or empty ones change
    nothing.
    """
    served = Served(tmp_path, settings=QUICK, endpoint=receiver.endpoint)
    write = through_a_link(tmp_path) if mounted else served.settings.write_text
    write(QUICK)
    with served:
        ask(served)
        served.wait_for(lambda: names(receiver) == {"response_health"}, "the first criterion")
        write("evaluators: [Nothing]\n")
        served.wait_for(
            lambda: "wrong, the ones from before are kept" in served.printed, "a refusal", 10
        )
        ask(served)
        if not mounted:
            served.settings.unlink()
        served.wait_for(lambda: len(receiver.events()) >= 2, "a score by the old settings")
        assert names(receiver) == {"response_health"}
        write(OTHER)
        served.wait_for(lambda: "in force" in served.printed, "a change", 10)
        ask(served)
        served.wait_for(lambda: "other" in names(receiver), "the other criterion")
        assert served.terminate() == 0
        assert served.outcomes() == {"evaluated": 3}


def test_sighup_reads_the_settings_at_once(tmp_path: Path, receiver: Receiver) -> None:
    """It does not end the process, as it would one that does not know it."""
    with Served(tmp_path, settings=QUICK, endpoint=receiver.endpoint) as served:
        served.settings.write_text(OTHER)
        served.process.send_signal(signal.SIGHUP)
        ask(served)
        served.wait_for(lambda: names(receiver) != set(), "a score")
        assert served.terminate() == 0


def test_options_leave_the_other_settings_as_they_are(tmp_path: Path) -> None:
    """`--http-port` does not take back the token that stands in the file beside it."""
    with Served(
        tmp_path, settings=SETTINGS + "sidecar: {token: a-long-enough-token-here}\n"
    ) as served:
        assert served.post(trace_request(new_trace_id())).status == 401


def test_sigterm_during_the_start_ends_it(tmp_path: Path) -> None:
    """At whatever moment: nothing was taken, so it ends by the signal or by itself, and prints no
    traceback.
    """
    for pause_s in (0.0, 0.3, 0.6, 1.0, 1.5):
        served = Served(tmp_path, settings=QUICK)
        with suppress(AssertionError):
            served.start(until="")
        served.process.poll()
        deadline = time.monotonic() + pause_s
        served.wait_for(lambda deadline=deadline: time.monotonic() >= deadline, "a moment")
        assert served.terminate() in (0, -signal.SIGTERM)
        assert "Traceback" not in served.told, served.told


def test_a_second_sigterm_ends_it_at_once(tmp_path: Path) -> None:
    """Where the drain waits for what does not come, the operator need not."""
    settings = SETTINGS + "sidecar: {quiet_s: 0.1, drain_s: 60}\n"
    with (
        refused_port() as port,
        Served(tmp_path, settings=settings, endpoint=f"http://127.0.0.1:{port}") as served,
    ):
        for _ in range(5):
            ask(served)
        served.process.send_signal(signal.SIGTERM)
        served.wait_for(lambda: "ending" in served.printed, "an end")
        with suppress(ProcessLookupError):
            served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(30) in (0, -signal.SIGTERM)


def test_its_log_holds_no_content(tmp_path: Path, receiver: Receiver) -> None:
    """Neither ours nor that of a server below it, whatever is wrong with what comes."""
    canary = CANARY.encode()
    settings = "evaluators: [ResponseHealth, 'tests.sidecar.broken:broken']\nsample_rate: 1.0\n"
    settings += "sidecar: {quiet_s: 0.1, parent_wait_s: 0.2}\n"
    with Served(tmp_path, settings=settings, endpoint=receiver.endpoint) as served:
        good = trace_request(new_trace_id(), text=CANARY)
        assert served.post(good).status == 200
        for body, headers in (
            (canary, {}),
            (canary, {"Content_Type": "application/json"}),
            (canary, {"Content_Encoding": "gzip"}),
            (b'{"resourceSpans": "%s"}' % canary, {"Content_Type": "application/json"}),
            (good, {"Content_Type": CANARY}),
            (good, {"Content_Encoding": CANARY}),
            (good, {"Authorization": CANARY}),
        ):
            served.post(body, **headers)
        served.post(good, path=f"/{CANARY}")
        served.export(canary)
        served.export(canary, metadata=(("x-canary", CANARY), ("x-canary-bin", canary)))
        served.export(good, compression=grpc.Compression.Deflate)
        for port in (served.http_port, served.grpc_port):
            for data in (
                canary,
                b"GET /%s HTTP/9.9\r\n\r\n" % canary,
                b"\x16\x03\x01" + canary,
                b"POST /v1/traces HTTP/1.1\r\nHost: %s\r\nX Y: %s\r\n\r\n" % (canary, canary),
                b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: %s\r\nConnection: upgrade\r\n\r\n" % canary,
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + canary * 100,
            ):
                with (
                    suppress(OSError),
                    socket.create_connection(("127.0.0.1", port), timeout=2) as client,
                ):
                    client.sendall(data)
                    client.shutdown(socket.SHUT_WR)
                    client.recv(65_536)
        served.wait_for(lambda: len(receiver.events()) >= 2, "scores")
        assert served.terminate() == 0
        assert CANARY not in served.told, served.told


def test_a_closed_input_and_output_do_not_matter(tmp_path: Path) -> None:
    """As under a service manager that gives it neither; it serves, and ends when it is asked."""
    with Served(tmp_path, settings=QUICK) as served:
        ask(served)
        assert os.readlink(f"/proc/{served.process.pid}/fd/0") == "/dev/null"
        assert served.terminate() == 0
