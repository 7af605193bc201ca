"""Feedback over HTTP, and from the command line, into a real sidecar."""

from __future__ import annotations

import contextlib
import gc
import json
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from agenteval_otel import configure, evaluation_reference, flush, monitor
from agenteval_otel.cli import main
from agenteval_otel.config.sidecar import SidecarSettings
from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.instrumentation.feedback.recorder import RECORDER
from agenteval_otel.sidecar.serve import Sidecar
from agenteval_otel.testing import RecordedTelemetry

TOKEN = "token-0123456789abcdef"


@pytest.fixture
def url(telemetry: RecordedTelemetry) -> Iterator[str]:
    RECORDER.reset()
    configure(storage=[telemetry.storage()], sample_rate=1.0)
    sidecar = Sidecar(SidecarSettings(grpc_port=0, http_port=0, token=TOKEN))
    yield sidecar.start().http
    sidecar.stop(5.0)


def post(url: str, body: bytes, token: str = TOKEN) -> tuple[int, str]:
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    try:
        with urlopen(Request(f"{url}/v1/feedback", body, headers), timeout=10) as reply:
            return reply.status, reply.read().decode()
    except HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()


@monitor(agent="support")
def answer(question: str) -> str:
    return evaluation_reference()


def criteria(telemetry: RecordedTelemetry) -> list[str]:
    kinds = ("human", "application")
    events = [dict(event.attributes) for event in telemetry.events()]
    of_people = [event for event in events if event["gen_ai.evaluation.evaluator.type"] in kinds]
    return sorted(str(event["gen_ai.evaluation.name"]) for event in of_people)


def test_feedback_is_taken_over_http(telemetry: RecordedTelemetry, url: str) -> None:
    """A thumb and the application's own score, one by one and in a list, are results of the answer."""
    reference = answer("When?")
    assert post(url, json.dumps({"reference": reference, "thumbs": "down"}).encode()) == (
        202,
        '{"taken": 1}',
    )
    several = [
        {"reference": reference, "name": "resolved", "value": True},
        {"reference": reference, "score": 0.3},
    ]
    assert post(url, json.dumps(several).encode()) == (202, '{"taken": 2}')
    assert flush()
    assert criteria(telemetry) == ["resolved", "user_feedback", "user_feedback"]


@pytest.mark.parametrize(
    ("body", "status", "answer"),
    [
        (b"{", 400, "not JSON"),
        (b"[" * 40_000 + b"]" * 40_000, 400, "deeper than 64 levels"),
        (b"[" * 100_000, 413, "more than 50,000 values"),
        (b'{"response_id": "r", "thumbs": "up", "thumbs": "down"}', 400, "appears twice"),
        (b'{"response_id": "\\ud800", "thumbs": "up"}', 400, "half of a character"),
        ('{"response_id": "r", "thumbs": "up"}'.encode("utf-16"), 400, "not UTF-8"),
        (b"7", 400, "expected an object"),
        (b"{}", 400, "expected a reference"),
        (b'{"response_id": "r"}', 400, "expected thumbs"),
        (b'{"response_id": "r", "thumb": "up"}', 400, "did you mean 'thumbs'"),
        (b'{"response_id": "r", "score": 7}', 400, "0 to 1"),
        (b'[{"response_id": "r", "thumbs": "up"}, {}]', 400, "[1]"),
        (b'{"response_id": "r", "ground_truth": " "}', 400, "ground_truth: expected an answer"),
        (b'{"response_id": "r", "ground_truth": "x", "thumbs": "up"}', 400, "thumbs"),
        (
            json.dumps({"response_id": "r", "ground_truth": "x" * 20_000}).encode(),
            400,
            "at most 16,384 bytes",
        ),
        (json.dumps([{}] * 1_001).encode(), 413, "more than 1,000"),
        (b" " * 1_100_000, 413, "larger than"),
    ],
)
def test_wrong_feedback_is_refused(
    telemetry: RecordedTelemetry, url: str, body: bytes, status: int, answer: str
) -> None:
    """What is wrong is said with the field, and of a list with a mistake nothing is taken."""
    code, text = post(url, body)
    assert (code, answer in text) == (status, True), text
    assert flush()
    assert criteria(telemetry) == []


def test_a_full_queue_refuses_in_time(
    telemetry: RecordedTelemetry, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could only be dropped behind its acknowledgement is refused, and its sender asked to
    come again.
    """
    monkeypatch.setattr(Pipeline, "has_room", lambda self: False)
    assert post(url, b'{"response_id": "r", "thumbs": "up"}')[0] == 429
    monkeypatch.undo()
    assert post(url, b'{"response_id": "r", "thumbs": "up"}')[0] == 202


def test_replies_do_not_wait_for_acknowledgements(telemetry: RecordedTelemetry, url: str) -> None:
    """Head and body are two writes: with Nagle's algorithm the second one would wait 40 ms for the
    client's system.
    """
    client = HTTPConnection(url.removeprefix("http://"), timeout=10)
    client.request("GET", "/healthz")
    client.getresponse().read()
    of_server = peer_of(client.sock)
    assert of_server.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    client.close()


def peer_of(client: socket.socket) -> socket.socket:
    """The other end of a connection within this process."""
    for candidate in gc.get_objects():
        # `isinstance` would ask a proxy whose object is gone.
        if type(candidate) is not socket.socket or candidate.fileno() < 0:
            continue
        with contextlib.suppress(OSError):  # one that only listens
            if candidate.getpeername() == client.getsockname():
                return candidate
    raise AssertionError("no such socket")


def test_feedback_needs_the_token(telemetry: RecordedTelemetry, url: str) -> None:
    """Without the token nothing is read."""
    assert (
        post(url, b'{"response_id": "r", "thumbs": "up"}', token="another-0123456789abcdef")[0]
        == 401
    )


def test_the_command_line_sends_feedback(
    telemetry: RecordedTelemetry,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The verb sends it, says what the sidecar refuses, and what is wrong before anything is sent."""
    monkeypatch.setenv("AGENTEVAL_SIDECAR__TOKEN", TOKEN)
    reference = answer("When?")
    assert main(["feedback", "--url", url, "--reference", reference, "--thumbs", "down"]) == 0
    assert capsys.readouterr().out == "taken\n"
    monkeypatch.setenv("AGENTEVAL_SIDECAR__TOKEN", "another-0123456789abcdef")
    assert main(["feedback", "--url", url, "--reference", reference, "--thumbs", "down"]) == 1
    assert "refused: 401" in capsys.readouterr().out
    assert main(["feedback", "--url", url, "--thumbs", "down"]) == 2
    assert "expected a reference" in capsys.readouterr().err
    assert (
        main(["feedback", "--url", "http://127.0.0.1:1", "--response-id", "r", "--thumbs", "up"])
        == 2
    )
    assert "cannot be reached" in capsys.readouterr().err
    assert flush()
    assert criteria(telemetry) == ["user_feedback"]


def test_a_page_in_a_browser_cannot_send_feedback(telemetry: RecordedTelemetry) -> None:
    """Of whatever site: without a token, a request with its origin is refused, of an erasure too."""
    sidecar = Sidecar(SidecarSettings(grpc_port=0, http_port=0))
    url = sidecar.start().http
    try:
        for path in ("/v1/feedback", "/v1/erase"):
            request = Request(
                f"{url}{path}",
                b"{}",
                {"origin": "https://example.com", "content-type": "text/plain"},
            )
            with pytest.raises(HTTPError) as caught:
                urlopen(request, timeout=10)
            with caught.value as refusal:
                assert refusal.code == 403
    finally:
        sidecar.stop(5.0)
