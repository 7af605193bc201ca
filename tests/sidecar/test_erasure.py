"""Erasing from a running sidecar: spans that wait, and its journal, over HTTP and by the command
line.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agenteval_otel.capture.otlp.body import OtlpMessages
from agenteval_otel.cli import main
from agenteval_otel.config import default_pipeline
from agenteval_otel.instrumentation.feedback.recorder import RECORDER
from tests.sidecar.applications import Served

TOKEN = "token-0123456789abcdef"
CANARY = "canary-7f3a"


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
def served(serve: Callable[..., Served], tmp_path: Path) -> Served:
    RECORDER.reset()
    settings = {"token": TOKEN, "quiet_s": 3_600, "durable": str(tmp_path / "durable")}
    made = serve("ResponseHealth", sidecar=settings, sample_rate=1.0)
    made.sidecar.read_left(threading.Event())
    return made


def post(
    served: Served, body: bytes, path: str = "/v1/traces", token: str = TOKEN
) -> tuple[int, str]:
    kind = "application/x-protobuf" if path == "/v1/traces" else "application/json"
    return served.post(path, body, Content_Type=kind, Authorization=f"Bearer {token}")


def test_what_waits_in_a_running_sidecar(
    tmp_path: Path,
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Spans that wait, in memory and in the journal's bytes; the other conversation goes on
    waiting.
    """
    for number, (conversation, text) in enumerate((("c-1", CANARY), ("c-2", "of another")), 1):
        assert post(served, request_of((number, conversation), text=text))[0] == 200
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
    assert main([*arguments, served.addresses.http]) == 1
    assert "refused: 401" in capsys.readouterr().out
    monkeypatch.setenv("AGENTEVAL_SIDECAR__TOKEN", TOKEN)
    assert main([*arguments, served.addresses.http]) == 0
    assert f"sidecar at {served.addresses.http}: 1" in capsys.readouterr().out
    assert not files_with(tmp_path / "durable", CANARY)
    assert files_with(tmp_path / "durable", "of another")
    assert sum(source.state().get("size", 0) for source in default_pipeline().sources) == 1
    # Its next spans are late, as after an evaluation.
    assert post(served, request_of((1, None)))[0] == 200


@pytest.mark.parametrize(
    ("body", "status", "answer"),
    [
        (b"{", 400, "not JSON"),
        (b"{}", 400, "expected"),
        (b'{"before": 5}', 400, "found int"),
        (b'{"user": "a", "user": "b"}', 400, "appears twice"),
        (b" " * 1_100_000, 413, "larger"),
    ],
)
def test_wrong_requests_are_refused(served: Served, body: bytes, status: int, answer: str) -> None:
    """With the reason."""
    code, text = post(served, body, "/v1/erase")
    assert (code, answer in text) == (status, True), text
    assert post(served, b"{}", "/v1/erase", token="wrong")[0] == 401
