"""Off-peak judges through Anthropic's batch API: the wire format with the real SDK, prices, losses,
crashes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import Settings, flush, monitor
from agenteval_otel.config import default_pipeline
from agenteval_otel.config.process import build
from agenteval_otel.engine.capabilities.off_peak.off_peak import OffPeak
from agenteval_otel.evaluators.judges.anthropic import AnthropicJudge
from agenteval_otel.semconv import JUDGE_PERIOD, METRIC_JUDGE_BUDGET
from agenteval_otel.testing import ModelReply, ModelServer, RecordedTelemetry
from tests.engine.test_off_peak import Night

PASSES = json.dumps({"evidence": ["Within ten days"], "reason": "it says when", "score": True})
COLLECTED_S = 400.0
"""After this time the questions of an answer are sent."""
WINDOW = {"batch": True, "batch_every_s": 300}
PRICES = {"m-1": {"input": 10.0, "output": 50.0}}
BATCH_USD = (1_000 * 10 + 100 * 50) / 1e6 / 2


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")


def reply(**fields: Any) -> ModelReply:
    return ModelReply(text=PASSES, input_tokens=1_000, output_tokens=100, **fields)


class Batched(Night):
    """A process whose judge is asked in batches, by a server of the test's."""

    def __init__(self, telemetry: RecordedTelemetry, folder: Path, server: ModelServer) -> None:
        super().__init__(telemetry, folder)
        self.server = server

    def evaluator(self, words: str = "Says when", **judge: Any) -> dict[str, Any]:
        return {
            "type": "LLMJudge",
            "description": words,
            "criterion_name": "when",
            "judge": {"type": "anthropic", "model": "m-1", "base_url": self.server.url, **judge},
            "schedule": "off_peak",
        }

    def begin(self, *names: str, **judge: Any) -> None:
        """Set the judge up, have these people's answers kept, and look once."""
        self.set_up(self.evaluator(**judge), off_peak=WINDOW)
        for name in names:
            answer(name)
        assert flush(30)
        self.look()

    def look_each_minute(self, minutes: int = 4) -> None:
        for _ in range(minutes):
            self.look(after_s=61.0)

    def questions(self) -> list[tuple[str, str | None]]:
        with self.database() as connection:
            return connection.execute("SELECT state, batch FROM questions ORDER BY key").fetchall()

    def spent_usd(self) -> float:
        """What the exported budget of a dollar a day lacks."""
        points = self.telemetry.points(METRIC_JUDGE_BUDGET.name)
        by_period = {point.attributes[JUDGE_PERIOD]: point.value for point in points}
        return 1.0 - float(by_period["day"])


@monitor(agent="support")
def answer(question: str) -> str:
    return f"Within ten days, {question}."


@pytest.fixture
def night(telemetry: RecordedTelemetry, tmp_path: Path) -> Iterator[Batched]:
    with ModelServer([reply()]) as server:
        yield Batched(telemetry, tmp_path, server)


def test_answers_come_in_a_batch(night: Batched) -> None:
    """Collected for five minutes, sent once, asked for each minute; the results stand in the traces
    of the answers.
    """
    server = night.server
    server.batch_polls = 2
    night.begin("ann", "bob")
    assert [state for state, _ in night.questions()] == ["new", "new"]
    assert (server.requests, night.names()) == ([], ["response_health"] * 2)
    night.look(after_s=361.0)
    night.look_each_minute(1)
    assert {batch for _, batch in night.questions()} == {"msgbatch_0001"}
    assert night.names() == ["response_health"] * 2
    night.look_each_minute(2)
    assert night.names() == ["response_health"] * 2 + ["when"] * 2
    assert (night.waiting(), night.questions(), night.lost()) == (0, [], {})
    events = night.telemetry.events()
    assert {event.trace_id for event in events[:2]} == {event.trace_id for event in events[2:]}
    assert [path.partition("?")[0] for path in server.paths] == ["/v1/messages/batches"] * 2
    assert server.requests[0]["model"] == "m-1"
    assert server.requests[0]["output_config"]["format"]["type"] == "json_schema"
    assert server.headers[0]["authorization"] == "Bearer test-key"


def test_a_batch_costs_half(night: Batched) -> None:
    """Reserved at half the price, corrected when it is known what was used, and on the result."""
    night.begin("ann", spend={"usd_per_day": 1.0, "prices": PRICES, "account": "half"})
    at_most_usd = night.spent_usd()
    night.look(after_s=COLLECTED_S)
    night.look_each_minute()
    assert night.spent_usd() == pytest.approx(BATCH_USD)
    assert at_most_usd > night.spent_usd()


def test_what_does_not_fit_the_budget_is_skipped_at_once(night: Batched) -> None:
    """No question is asked for it; the result says why."""
    night.begin("ann", spend={"usd_per_day": 1e-6, "prices": PRICES, "account": "none"})
    assert (night.waiting(), night.questions(), night.server.requests) == (0, [], [])
    assert default_pipeline().accounting.results["skipped"] == 1


@pytest.mark.parametrize(
    ("status", "error_type"), [(410, "timeout"), (400, "bad_request"), (500, "server_error")]
)
def test_a_batch_that_fails_in_part(
    telemetry: RecordedTelemetry, tmp_path: Path, status: int, error_type: str
) -> None:
    """An expired or refused request is a failure of its own answer, without a score and without a
    price.
    """
    with ModelServer([reply(), reply(status=status)]) as server:
        night = Batched(telemetry, tmp_path, server)
        night.begin("ann", "bob")
        night.look(after_s=COLLECTED_S)
        night.look_each_minute()
    results = default_pipeline().accounting.results
    assert (results["scored"], results["failed"]) == (3, 1)
    errors = [event.attributes.get("error.type") for event in telemetry.events()]
    assert [error for error in errors if error] == [error_type]
    assert night.lost() == ({"batch_expired": 1} if status == 410 else {})


def test_the_batch_is_found_again_after_a_restart(night: Batched) -> None:
    """The next process asks for it by its id, and sends nothing a second time."""
    night.server.batch_polls = None
    night.begin("ann")
    night.look(after_s=COLLECTED_S)
    assert night.questions() == [("sent", "msgbatch_0001")]
    night.begin()  # with the same settings, as after a restart
    night.server.batch_polls = 0
    night.look_each_minute(3)
    assert (len(night.server.requests), night.waiting()) == (1, 0)
    assert night.names().count("when") == 1


def test_what_may_have_been_sent_is_not_sent_again(night: Batched) -> None:
    """A crash between the request and the batch's id: the answer is a failure, counted, and costs
    nothing more.
    """
    night.begin("ann")
    with night.database() as connection:
        connection.execute("UPDATE questions SET state = 'sending', sent = ?", (night.clock.now_s,))
    night.look(after_s=61.0)
    night.look(after_s=901.0)
    night.look_each_minute(2)
    assert (night.server.requests, night.waiting(), night.lost()) == ([], 0, {"unknown": 1})
    assert default_pipeline().accounting.results["failed"] == 1


def test_a_provider_that_is_away_is_asked_later(
    telemetry: RecordedTelemetry, tmp_path: Path
) -> None:
    """A refused connection took nothing: the questions wait for the next batch."""
    with ModelServer([reply()]) as away:
        pass
    night = Batched(telemetry, tmp_path, away)
    night.begin("ann")
    night.look(after_s=COLLECTED_S)
    assert (night.questions(), night.lost()) == ([("new", None)], {})


def test_an_evaluator_that_changed_meanwhile(night: Batched) -> None:
    """The paid answer is to another question: the answer is given up and counted, and nothing is
    asked again.
    """
    night.server.batch_polls = 1
    night.begin("ann")
    night.look(after_s=COLLECTED_S)
    night.begin(words="Says how")
    night.look_each_minute()
    assert (len(night.server.requests), night.waiting(), night.lost()) == (1, 0, {"changed": 1})
    assert "when" not in night.names()


def test_equal_questions_are_asked_once(night: Batched) -> None:
    """Two equal answers share one request of the batch, and both have a result."""
    night.begin("ann", "ann")
    night.look(after_s=COLLECTED_S)
    night.look_each_minute()
    assert len(night.server.requests) == 1
    assert night.names().count("when") == 2


def test_two_processes_that_fetch_one_batch_settle_it_once(
    night: Batched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are answered by the provider; the budget is corrected by the one that notes the answers
    first.
    """
    spend = {"usd_per_day": 1.0, "prices": PRICES, "account": "of two processes"}
    night.server.batch_polls = None
    night.begin("ann", spend=spend)
    night.look(after_s=COLLECTED_S)
    night.server.batch_polls = 0
    monkeypatch.setattr(OffPeak, "start", bool)
    faster = build(
        Settings(
            storage=[night.telemetry.storage()],
            off_peak={**WINDOW, "path": night.folder / "off-peak.db"},
            evaluators=[night.evaluator(spend=spend)],
        )
    )
    faster.handler("support")
    of_faster = faster.capabilities.of(OffPeak)
    assert of_faster is not None
    of_faster.clock = night.clock
    fetch = AnthropicJudge.batch_answers

    async def overtaken(judge: Any, batch: str, requests: Any) -> Any:
        monkeypatch.setattr(AnthropicJudge, "batch_answers", fetch)
        await asyncio.to_thread(of_faster.look)
        return await fetch(judge, batch, requests)

    monkeypatch.setattr(AnthropicJudge, "batch_answers", overtaken)
    night.look(after_s=61.0)
    assert faster.shutdown(30)
    assert len(night.server.requests) == 1
    assert night.names().count("when") == 1
    assert night.spent_usd() == pytest.approx(BATCH_USD)
