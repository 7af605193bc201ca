"""Erasing from a running sidecar: spans that wait, and its journal, over HTTP and by the command
line.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from agenteval_otel import configure
from agenteval_otel.capture.otlp.body import OtlpMessages
from agenteval_otel.cli import main
from agenteval_otel.config import default_pipeline
from agenteval_otel.config.sidecar import SidecarSettings
from agenteval_otel.instrumentation.feedback.recorder import RECORDER
from agenteval_otel.sidecar.serve import Sidecar
from agenteval_otel.testing import RecordedTelemetry

TOKEN = "token-0123456789abcdef"
CANARY = "canary-7f3a"
PROTOBUF = "application/x-protobuf"


def files_with(folder: Path, text: str) -> list[str]:
    return [
        file.name
        for file in folder.rglob("*")
        if file.is_file() and text.encode() in file.read_bytes()
    ]


def request_of(*spans: tuple[int, str | None], text: str = "text") -> bytes:
    """A request with a span of each trace, some of which name a conversation."""
    request = OtlpMessages("trace").request()
    scope = request.resource_spans.add().scope_spans.add()
    for number, (trace, conversation) in enumerate(spans, 1):
        span = scope.spans.add(
            trace_id=trace.to_bytes(16),
            span_id=(trace * 100 + number).to_bytes(8),
            name="chat m",
            start_time_unix_nano=10**18,
            end_time_unix_nano=10**18 + 1,
        )
        values = {
            "gen_ai.operation.name": "chat",
            "gen_ai.conversation.id": conversation,
            "note": text,
        }
        for key, value in values.items():
            if value is not None:
                span.attributes.add(key=key).value.string_value = value
    data: bytes = request.SerializeToString()
    return data


@pytest.fixture
def sidecar(tmp_path: Path, telemetry: RecordedTelemetry) -> Iterator[str]:
    RECORDER.reset()
    configure(storage=[telemetry.storage()], sample_rate=1.0)
    running = Sidecar(
        SidecarSettings(
            grpc_port=0, http_port=0, token=TOKEN, quiet_s=3_600, durable=str(tmp_path / "durable")
        )
    )
    url = running.start().http
    running.read_left(threading.Event())
    yield url
    running.stop(5.0)


def post(
    url: str, path: str, body: bytes, content_type: str, token: str = TOKEN
) -> tuple[int, str]:
    headers = {"authorization": f"Bearer {token}", "content-type": content_type}
    try:
        with urlopen(Request(f"{url}{path}", body, headers), timeout=30) as reply:
            return reply.status, reply.read().decode()
    except HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()


def test_what_waits_in_a_running_sidecar(
    tmp_path: Path,
    sidecar: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Spans that wait, in memory and in the journal's bytes; the other conversation goes on
    waiting.
    """
    for number, (conversation, text) in enumerate((("c-1", CANARY), ("c-2", "of another")), 1):
        assert (
            post(sidecar, "/v1/traces", request_of((number, conversation), text=text), PROTOBUF)[0]
            == 200
        )
    assert files_with(tmp_path / "durable", CANARY)
    (tmp_path / "settings.yaml").write_text("{}")
    arguments = [
        "erase",
        "--conversation",
        "c-1",
        "--settings",
        str(tmp_path / "settings.yaml"),
        "--yes",
        "--url",
    ]
    assert main([*arguments, sidecar]) == 1
    assert "refused: 401" in capsys.readouterr().out
    monkeypatch.setenv("AGENTEVAL_SIDECAR__TOKEN", TOKEN)
    assert main([*arguments, sidecar]) == 0
    assert f"sidecar at {sidecar}: 1" in capsys.readouterr().out
    assert not files_with(tmp_path / "durable", CANARY)
    assert files_with(tmp_path / "durable", "of another")
    assert sum(source.state().get("size", 0) for source in default_pipeline().sources) == 1
    # Its next spans are late, as after an evaluation.
    assert post(sidecar, "/v1/traces", request_of((1, None)), PROTOBUF)[0] == 200


@pytest.mark.parametrize(
    ("body", "content_type", "status", "answer"),
    [
        (b"{", "application/json", 400, "not JSON"),
        (b"{}", "application/json", 400, "expected"),
        (b'{"before": 5}', "application/json", 400, "found int"),
        (b'{"user": "a", "user": "b"}', "application/json", 400, "appears twice"),
        (b" " * 1_100_000, "application/json", 413, "larger"),
    ],
)
def test_wrong_requests_are_refused(
    sidecar: str, body: bytes, content_type: str, status: int, answer: str
) -> None:
    """With the reason."""
    code, text = post(sidecar, "/v1/erase", body, content_type)
    assert (code, answer in text) == (status, True), text
    assert post(sidecar, "/v1/erase", b"{}", content_type, token="wrong")[0] == 401
