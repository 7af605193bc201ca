"""Off-peak judges through Anthropic's batch API: the wire format with the real SDK, prices, losses,
crashes.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import configure, flush, monitor
from agenteval_otel.config import default_pipeline
from agenteval_otel.engine.capabilities.off_peak.off_peak import OffPeak
from agenteval_otel.testing import ModelReply, ModelServer, RecordedTelemetry
from tests.engine.test_off_peak import NOON, Clock, counts, names, waiting

PASSES = json.dumps({"evidence": ["Within ten days"], "reason": "it says when", "score": True})


@pytest.fixture
def clock() -> Clock:
    return Clock(NOON)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer([reply()]) as running:
        yield running


def reply(**fields: Any) -> ModelReply:
    return ModelReply(text=PASSES, input_tokens=1_000, output_tokens=100, **fields)


def set_up(
    telemetry: RecordedTelemetry,
    folder: Path,
    clock: Clock,
    server: ModelServer,
    *,
    words: str = "Says when",
    **judge: Any,
) -> OffPeak:
    judge = {"type": "anthropic", "model": "m-1", "base_url": server.url, **judge}
    evaluator = {"type": "LLMJudge", "description": words, "criterion_name": "when", "judge": judge}
    configure(
        storage=[telemetry.storage()],
        sample_rate=1.0,
        evaluators=["ResponseHealth", {**evaluator, "schedule": "off_peak"}],
        off_peak={"path": folder / "off-peak.db", "batch": True, "batch_every_s": 300},
    )
    off_peak = default_pipeline().capabilities.of(OffPeak)
    assert off_peak is not None
    off_peak.clock = clock
    off_peak._worker.close(5.0)  # looks when the test says so
    off_peak._worker.start = bool  # type: ignore[method-assign]
    return off_peak


@monitor(agent="support")
def answer(question: str) -> str:
    return f"Within ten days, {question}."


def pass_time(off_peak: OffPeak, clock: Clock, seconds: float = 61.0) -> None:
    """Look, evaluate what is there, and let time pass."""
    off_peak.look()
    assert flush(30)
    clock.now_s += seconds


def questions(folder: Path) -> list[tuple[str, str | None]]:
    with closing(sqlite3.connect(folder / "off-peak.db")) as connection:
        return connection.execute("SELECT state, batch FROM questions ORDER BY key").fetchall()


def batches(server: ModelServer) -> int:
    return len(server._batches)


def test_answers_come_in_a_batch(
    telemetry: RecordedTelemetry, tmp_path: Path, clock: Clock, server: ModelServer
) -> None:
    """Collected for five minutes, sent once, asked for each minute; the results stand in the traces
    of the answers.
    """
    server.batch_polls = 2
    off_peak = set_up(telemetry, tmp_path, clock, server)
    for name in ("ann", "bob"):
        answer(name)
    assert flush(30)
    pass_time(off_peak, clock)
    assert [state for state, _ in questions(tmp_path)] == ["new", "new"]
    assert (batches(server), names(telemetry)) == (0, ["response_health"] * 2)
    clock.now_s += 300
    for _ in range(2):
        pass_time(off_peak, clock)
    assert (batches(server), names(telemetry)) == (1, ["response_health"] * 2)
    for _ in range(3):
        pass_time(off_peak, clock)
    assert names(telemetry) == ["response_health"] * 2 + ["when"] * 2
    assert (waiting(tmp_path), questions(tmp_path), counts()) == (0, [], {})
    events = telemetry.events()
    assert {event.trace_id for event in events[:2]} == {event.trace_id for event in events[2:]}
    assert {path.partition("?")[0] for path in server.paths} == {"/v1/messages/batches"}
    assert server.requests[0]["model"] == "m-1"
    assert server.requests[0]["output_config"]["format"]["type"] == "json_schema"
    assert server.headers[0]["authorization"] == "Bearer test-key"


def test_a_batch_costs_half(
    telemetry: RecordedTelemetry, tmp_path: Path, clock: Clock, server: ModelServer
) -> None:
    """Reserved at half the price, corrected when it is known what was used, and on the result."""
    spend = {
        "usd_per_day": 1.0,
        "prices": {"m-1": {"input": 10.0, "output": 50.0}},
        "account": "half",
    }
    off_peak = set_up(telemetry, tmp_path, clock, server, spend=spend)
    answer("ann")
    assert flush(30)
    pass_time(off_peak, clock, 400)
    (judge,) = off_peak._batches._judges.values()  # type: ignore[union-attr]
    at_most = 1.0 - judge.budget.remaining_usd()["day"]
    for _ in range(4):
        pass_time(off_peak, clock)
    spent = 1.0 - judge.budget.remaining_usd()["day"]
    assert spent == pytest.approx((1_000 * 10 + 100 * 50) / 1e6 / 2)
    assert at_most > spent
    points = telemetry.points("agenteval.judge.cost")
    assert sum(getattr(point, "value", 0) for point in points) == pytest.approx(spent) or not points


def test_what_does_not_fit_the_budget_is_skipped_at_once(
    telemetry: RecordedTelemetry, tmp_path: Path, clock: Clock, server: ModelServer
) -> None:
    """No question is asked for it; the result says why."""
    spend = {
        "usd_per_day": 0.000001,
        "prices": {"m-1": {"input": 10.0, "output": 50.0}},
        "account": "none",
    }
    off_peak = set_up(telemetry, tmp_path, clock, server, spend=spend)
    answer("ann")
    assert flush(30)
    pass_time(off_peak, clock)
    assert (waiting(tmp_path), questions(tmp_path), batches(server)) == (0, [], 0)
    assert default_pipeline().accounting.results["skipped"] == 1


@pytest.mark.parametrize(
    ("status", "error_type"), [(410, "timeout"), (400, "bad_request"), (500, "server_error")]
)
def test_a_batch_that_fails_in_part(
    telemetry: RecordedTelemetry, tmp_path: Path, clock: Clock, status: int, error_type: str
) -> None:
    """An expired or refused request is a failure of its own answer, without a score and without a
    price.
    """
    with ModelServer([reply(), reply(status=status)]) as server:
        off_peak = set_up(telemetry, tmp_path, clock, server)
        answer("ann")
        answer("bob")
        assert flush(30)
        pass_time(off_peak, clock, 400)
        for _ in range(4):
            pass_time(off_peak, clock)
    results = default_pipeline().accounting.results
    assert (results["scored"], results["failed"]) == (3, 1)
    errors = [dict(event.attributes).get("error.type") for event in telemetry.events()]
    assert [error for error in errors if error] == [error_type]
    assert counts() == ({"batch_expired": 1} if status == 410 else {})


def test_the_batch_is_found_again_after_a_restart(
    telemetry: RecordedTelemetry, tmp_path: Path, clock: Clock, server: ModelServer
) -> None:
    """The next process asks for it by its id, and sends nothing a second time."""
    server.batch_polls = None
    off_peak = set_up(telemetry, tmp_path, clock, server)
    answer("ann")
    assert flush(30)
    pass_time(off_peak, clock, 400)
    pass_time(off_peak, clock)
    assert questions(tmp_path) == [("sent", "msgbatch_0001")]
    # with the same settings, as after a restart
    off_peak = set_up(telemetry, tmp_path, clock, server)
    server.batch_polls = 0
    for _ in range(3):
        pass_time(off_peak, clock)
    assert (batches(server), waiting(tmp_path)) == (1, 0)
    assert names(telemetry).count("when") == 1


def test_what_may_have_been_sent_is_not_sent_again(
    telemetry: RecordedTelemetry, tmp_path: Path, clock: Clock, server: ModelServer
) -> None:
    """A crash between the request and the batch's id: the answer is a failure, counted, and costs
    nothing more.
    """
    off_peak = set_up(telemetry, tmp_path, clock, server)
    answer("ann")
    assert flush(30)
    pass_time(off_peak, clock)
    with closing(sqlite3.connect(tmp_path / "off-peak.db")) as connection:
        connection.execute("UPDATE questions SET state = 'sending', sent = ?", (clock.now_s,))
        connection.commit()
    pass_time(off_peak, clock, 901)
    for _ in range(3):
        pass_time(off_peak, clock)
    assert (batches(server), waiting(tmp_path), counts()) == (0, 0, {"unknown": 1})
    assert default_pipeline().accounting.results["failed"] == 1


def test_a_provider_that_is_away_is_asked_later(
    telemetry: RecordedTelemetry, tmp_path: Path, clock: Clock
) -> None:
    """A refused connection took nothing: the questions wait for the next batch."""
    with ModelServer([reply()]) as server:
        url = server.url
    with ModelServer([reply()]) as server:
        server_url, server.url = server.url, url
        off_peak = set_up(telemetry, tmp_path, clock, server)
        server.url = server_url
        answer("ann")
        assert flush(30)
        pass_time(off_peak, clock, 400)
        pass_time(off_peak, clock)
        assert questions(tmp_path) == [("new", None)]
        assert counts() == {}


def test_an_evaluator_that_changed_meanwhile(
    telemetry: RecordedTelemetry, tmp_path: Path, clock: Clock, server: ModelServer
) -> None:
    """The paid answer is to another question: the answer is given up and counted, and nothing is
    asked again.
    """
    server.batch_polls = 1
    off_peak = set_up(telemetry, tmp_path, clock, server)
    answer("ann")
    assert flush(30)
    pass_time(off_peak, clock, 400)
    pass_time(off_peak, clock)
    off_peak = set_up(telemetry, tmp_path, clock, server, words="Says how")
    for _ in range(4):
        pass_time(off_peak, clock)
    assert (batches(server), waiting(tmp_path), counts()) == (1, 0, {"changed": 1})
    assert "when" not in names(telemetry)


def test_equal_questions_are_asked_once(
    telemetry: RecordedTelemetry, tmp_path: Path, clock: Clock, server: ModelServer
) -> None:
    """Two equal answers share one request of the batch, and both have a result."""
    off_peak = set_up(telemetry, tmp_path, clock, server)
    answer("ann")
    answer("ann")
    assert flush(30)
    pass_time(off_peak, clock, 400)
    for _ in range(4):
        pass_time(off_peak, clock)
    assert len(server.requests) == 1
    assert names(telemetry).count("when") == 2


def test_two_processes_that_fetch_one_batch_settle_it_once(
    telemetry: RecordedTelemetry,
    tmp_path: Path,
    clock: Clock,
    server: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both are answered by the provider; the budget is corrected by the one that notes the answers
    first.
    """
    server.batch_polls = 0
    off_peak = set_up(telemetry, tmp_path, clock, server)
    answer("ann")
    assert flush(30)
    pass_time(off_peak, clock, 400)
    off_peak._batches._asked_s["msgbatch_0001"] = clock.now_s + 1e6  # type: ignore[union-attr]
    pass_time(off_peak, clock)
    assert questions(tmp_path) == [("sent", "msgbatch_0001")]
    batches_here = off_peak._batches
    assert batches_here is not None
    (judge,) = batches_here._judges.values()
    settled: list[Any] = []
    kind = type(judge.inner)
    fetch = kind.batch_answers

    async def twice(self: Any, batch: str, requests: Any) -> Any:
        monkeypatch.setattr(kind, "batch_answers", fetch)
        await asyncio.to_thread(batches_here._fetch, judge, batch)  # the other process is faster
        return await fetch(self, batch, requests)

    monkeypatch.setattr(kind, "batch_answers", twice)
    monkeypatch.setattr(
        judge, "batch_answer", lambda reservation, given: settled.append(given) or given
    )
    batches_here._fetch(judge, "msgbatch_0001")
    assert (len(settled), questions(tmp_path)) == (1, [("done", "msgbatch_0001")])
