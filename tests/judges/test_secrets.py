"""Keys and questions stay where they belong: in the request to the provider, and nowhere else."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import traceback

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.judges import AnthropicJudge, Judge, JudgeRequest, OpenAICompatibleJudge
from agenteval_otel.testing import ModelReply, ModelServer
from tests.judges.asking import CANARY, FORM, GOOD, ask, failure, hosted

BOTH = pytest.mark.parametrize("kind", [AnthropicJudge, OpenAICompatibleJudge])
CONTENT = "the patient takes zyloprimine at night"
ASKED = JudgeRequest(system="You judge.", prompt=json.dumps({"answer": CONTENT}), answer_form=FORM)


@BOTH
def test_the_key_is_in_no_form_of_the_judge(kind: type[Judge]) -> None:
    """Neither repr, text, dumps nor fingerprint show it; copies can judge."""
    with ModelServer([GOOD]) as server:
        judge = hosted(kind, server, extra_headers={"x-gateway": f"{CANARY}-gateway"})
        shown = (
            f"{judge!r} {judge} {judge.model_dump()} {judge.model_dump_json()} {judge.fingerprint}"
        )
        assert CANARY not in shown
        for again in (copy.deepcopy(judge), pickle.loads(pickle.dumps(judge)), judge.model_copy()):
            assert ask(again).answer["score"] == 4
        assert ask(judge).answer["score"] == 4
        assert CANARY not in repr(copy.copy(judge))
        assert all(CANARY in str(headers) for headers in server.headers)


@BOTH
@pytest.mark.parametrize("status", [400, 401, 429, 500])
def test_errors_do_not_repeat_a_providers_echo(
    kind: type[Judge], status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Key and question are neither in the error, its traceback nor a log."""
    echo = ModelReply(status=status, text=f"key {CANARY} is not allowed to ask about this")
    quoting = ModelReply(status=status, text=f"cannot read: {CONTENT}")
    caplog.set_level(logging.DEBUG)
    for reply in (echo, quoting):
        with ModelServer([reply]) as server:
            result = failure(hosted(kind, server, max_retries=0), ASKED)
        shown = f"{result} {result!r} {result.args} {''.join(traceback.format_exception(result))}"
        assert CANARY not in shown
        assert "zyloprimine" not in shown
        assert result.__cause__ is None
        assert result.__context__ is None
    assert CANARY not in caplog.text
    assert "zyloprimine" not in caplog.text


@BOTH
def test_calls_leave_nothing_in_the_hosts_logs(
    kind: type[Judge], caplog: pytest.LogCaptureFixture
) -> None:
    """At debug level a call adds no line of the clients."""
    with ModelServer([GOOD]) as server:
        judge = hosted(kind, server)
        ask(judge)  # clients make loggers when they are first used
        caplog.set_level(logging.DEBUG)
        ask(judge)
    lines = [
        record
        for record in caplog.records
        if record.name.startswith(("anthropic", "httpx2", "httpcore2"))
    ]
    assert lines == []


def test_calls_leave_no_span_and_no_trace_header(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's tracing is off, and no trace header reaches the provider."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    with ModelServer([GOOD]) as server:
        with provider.get_tracer("host").start_as_current_span("request"):
            ask(hosted(AnthropicJudge, server))
        assert "traceparent" not in server.headers[0]
    assert [span.name for span in exporter.get_finished_spans()] == ["request"]
    provider.shutdown()


@BOTH
def test_the_key_comes_from_its_variable(
    kind: type[Judge], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read for each request, so a new key works at once."""
    with ModelServer([GOOD]) as server:
        judge = hosted(kind, server, api_key=None, api_key_env="OWN_JUDGE_KEY")
        monkeypatch.setenv("OWN_JUDGE_KEY", f"{CANARY}-1")
        ask(judge)
        monkeypatch.setenv("OWN_JUDGE_KEY", f"{CANARY}-2")
        ask(judge)
        assert [
            f"{CANARY}-1" in str(server.headers[0]),
            f"{CANARY}-2" in str(server.headers[1]),
        ] == [True, True]


@BOTH
@pytest.mark.parametrize("value", [None, "", " ", f"{CANARY}\nX-Evil: 1", f"{CANARY}\u00e9"])
def test_an_invalid_key_is_not_sent(
    kind: type[Judge], value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the variable only, also for a key that would break out of its header."""
    monkeypatch.delenv("OWN_JUDGE_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("OWN_JUDGE_KEY", value)
    with ModelServer([GOOD]) as server:
        result = failure(hosted(kind, server, api_key=None, api_key_env="OWN_JUDGE_KEY"))
        assert server.requests == []
    assert result.error_type == "authentication"
    assert "OWN_JUDGE_KEY" in str(result)
    assert CANARY not in str(result)


@BOTH
def test_a_wrong_key_in_settings_is_not_shown(kind: type[Judge]) -> None:
    """The error at load names the field and not the key."""
    for wrong in (f"{CANARY}\n", f"{CANARY} x"):
        with pytest.raises(ConfigurationError, match="api_key") as raised:
            kind.load({"model": "m", "base_url": "https://judge.example", "api_key": wrong})
        assert CANARY not in str(raised.value)
