"""Judges are watched: canaries, repeats, people, models; through the real client, by a thread of
its own.
"""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import configure, evaluation_reference, flush, monitor, record_feedback, semconv
from agenteval_otel.config.process import default_pipeline
from agenteval_otel.engine.capabilities.judge_health import JudgeHealth
from agenteval_otel.engine.capability import Capability
from agenteval_otel.engine.signals import StateChange
from agenteval_otel.evaluators import LLMJudge
from agenteval_otel.judges import OpenAICompatibleJudge
from agenteval_otel.testing import ModelReply, ModelServer, RecordedTelemetry
from tests.telemetry.support import points

MODEL = "judge-1"
LIMIT_S = 60.0  # `flush` returns once all is evaluated. 100 judged answers may take longer than 5 s
CANARIES = [
    {"prompt": "When?", "response": text, "labels": {"polite": polite, "unknown": 1}}
    for text, polite in [("At nine, with pleasure.", True), ("Find out yourself.", False)] * 5
]


class Provider:
    """A judge behind HTTP that is right as long as `is_right`; rude answers say so themselves.

    It is always wrong when the question contains `wrong_at`.
    """

    def __init__(self) -> None:
        self.is_right = True
        self.model = "judge-1-2026-01"
        self.wrong_at = "\0"
        self.server = ModelServer([self._reply])

    def _reply(self, body: dict[str, Any]) -> ModelReply:
        question = json.dumps(body["messages"])
        polite = "yourself" not in question
        is_right = self.is_right and self.wrong_at not in question
        text = json.dumps({"evidence": [], "reason": "r", "score": polite is is_right})
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": text},
        }
        usage = {"prompt_tokens": 100, "completion_tokens": 10}
        return ModelReply(
            body={
                "id": "r-1",
                "model": self.model,
                "system_fingerprint": "fp_1",
                "choices": [choice],
                "usage": usage,
            }
        )

    def judge(self, **settings: Any) -> OpenAICompatibleJudge:
        return OpenAICompatibleJudge.load(
            {"model": MODEL, "base_url": f"{self.server.url}/v1", "max_retries": 0, **settings}
        )

    def asks(self, **settings: Any) -> LLMJudge:
        return LLMJudge(
            "Is the answer polite?", criterion_name="polite", judge=self.judge(**settings)
        )


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    yield made
    made.server.close()


@pytest.fixture
def canaries(tmp_path: Path) -> Path:
    file = tmp_path / "canaries.jsonl"
    file.write_text("\n".join(map(json.dumps, CANARIES)))
    return file


@monitor(agent="support")
def answer(question: str) -> str:
    return question


def started(
    telemetry: RecordedTelemetry, evaluator: LLMJudge, capabilities: Any = (), **health: Any
) -> JudgeHealth:
    configure(
        storage=[telemetry.storage()],
        sample_rate=1.0,
        evaluators=[evaluator],
        judge_health=health,
        capabilities=capabilities,
    )
    made = default_pipeline().capabilities.of(JudgeHealth)
    assert made is not None
    return made


def wait_for(condition: Callable[[], object]) -> None:
    for _ in range(2_000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it has not come")


def rounds(health: JudgeHealth, number: int) -> None:
    """Have so many rounds of canaries asked, one after the other, on this thread."""
    for _ in range(number):
        health.ask_canaries()


def is_asking() -> bool:
    """Whether a thread asks judges on top."""
    return any(thread.name == "agenteval-judges" for thread in threading.enumerate())


def test_a_judge_that_agrees_is_trusted(
    telemetry: RecordedTelemetry, provider: Provider, canaries: Path
) -> None:
    """The first judged answer starts the thread; canaries are no answers, cost what they cost, and
    are no spans.
    """
    spend = {"prices": {MODEL: {"input": 1, "output": 5}}, "usd_per_day": 1, "account": "canaries"}
    health = started(
        telemetry, provider.asks(spend=spend, cache={}), canaries=str(canaries), every_s=1
    )
    answer("At ten, with pleasure.")
    assert flush(LIMIT_S)
    wait_for(lambda: health.checks.get(("canary", "agreed"), 0) >= 20)
    health.close()
    wait_for(lambda: not is_asking())
    calls = points(telemetry, semconv.METRIC_JUDGE_CALLS.name)[MODEL, "answered"]
    assert calls >= 21  # of the second round too: no verdict comes from the cache
    assert points(telemetry, semconv.METRIC_JUDGE_COST.name)[(MODEL,)] == pytest.approx(
        calls * 150e-6
    )
    assert points(telemetry, semconv.METRIC_JUDGE_AGREEMENT.name) == {
        ("canary", MODEL, "polite"): 1.0
    }
    assert points(telemetry, semconv.METRIC_JUDGE_UNTRUSTED.name) == {}
    assert points(telemetry, semconv.METRIC_RESULTS.name)[("support", "polite", "pass")] == 1
    assert len(telemetry.events()) == 1


def test_a_judge_that_gets_worse_is_marked_and_recovers(
    telemetry: RecordedTelemetry, provider: Provider, canaries: Path
) -> None:
    """Its results say so from then on, until it agrees again; the metric falls to 0."""
    health = started(telemetry, provider.asks(), canaries=str(canaries))
    answer("At nine, with pleasure.")
    assert flush(LIMIT_S)
    rounds(health, 2)
    provider.is_right = False
    rounds(health, 3)
    place = ("canary", MODEL, "polite")
    assert points(telemetry, semconv.METRIC_JUDGE_UNTRUSTED.name) == {place: 1.0}
    assert points(telemetry, semconv.METRIC_JUDGE_AGREEMENT.name)[place] == pytest.approx(2 / 5)
    answer("At ten, with pleasure.")
    assert flush(LIMIT_S)
    before, event = telemetry.events()
    assert semconv.JUDGE_UNTRUSTED not in before.attributes
    assert event.attributes[semconv.JUDGE_UNTRUSTED] is True
    assert event.attributes[semconv.JUDGE_FINGERPRINT] == "fp_1"
    provider.is_right = True
    rounds(health, 8)
    assert points(telemetry, semconv.METRIC_JUDGE_UNTRUSTED.name) == {place: 0.0}
    answer("At eleven, with pleasure.")
    assert flush(LIMIT_S)
    assert semconv.JUDGE_UNTRUSTED not in telemetry.events()[-1].attributes


class HearsChanges(Capability):
    """Keeps the changes that others announce."""

    def __init__(self) -> None:
        self.changes: list[StateChange] = []

    def on_change(self, change: StateChange) -> None:
        self.changes.append(change)


def test_a_check_that_recovers_is_announced_once_no_other_distrusts(
    telemetry: RecordedTelemetry, provider: Provider, canaries: Path
) -> None:
    """Canaries agree again while people do not: nothing has changed for who hears of the judge."""
    hears = HearsChanges()
    health = started(
        telemetry,
        provider.asks(),
        capabilities=[lambda host: hears],
        canaries=str(canaries),
        feedback={"user_feedback": "polite"},
    )

    @monitor(agent="support")
    def referring(question: str) -> tuple[str, str | None]:
        return question, evaluation_reference()

    for _ in range(30):
        _, reference = referring("At ten, with pleasure.")
        record_feedback(reference, thumbs="down")
    assert flush(LIMIT_S)
    provider.is_right = False
    rounds(health, 3)
    provider.is_right = True
    rounds(health, 8)
    heard = [(change.facts["check"], change.is_bad) for change in hears.changes]
    assert heard == [("people", True), ("canary", True)]


def test_a_failure_is_no_disagreement(telemetry: RecordedTelemetry, canaries: Path) -> None:
    """A judge that cannot be reached, or refuses, is not distrusted for it: other metrics and
    alerts say so.
    """
    with ModelServer([ModelReply(status=500)]) as server:
        settings = {
            "model": MODEL,
            "base_url": f"{server.url}/v1",
            "max_retries": 0,
            "breaker": None,
        }
        judge = OpenAICompatibleJudge.load(settings)
        asks = LLMJudge("Is the answer polite?", criterion_name="polite", judge=judge)
        health = started(telemetry, asks, canaries=str(canaries))
        rounds(health, 3)
    assert health.checks == {("canary", "failed"): 30}
    assert health.untrusted() == health.agreements() == {}


def test_the_same_question_is_asked_again(telemetry: RecordedTelemetry, provider: Provider) -> None:
    """Of a share of the answers; where there is a reference answer, every other time in the reverse
    order.
    """
    health = started(telemetry, provider.asks(cache={}), repeat_share=1.0)

    @monitor(agent="support", capture=lambda arguments, result: {"ground_truth": "At nine."})
    def with_reference(question: str) -> str:
        return question

    def compared() -> int:
        return sum(health.checks.values())

    for number in range(4):
        before = compared()
        with_reference(f"At {number}, with pleasure.")
        assert flush(LIMIT_S)
        wait_for(lambda: compared() > before)  # noqa: B023
    assert health.checks == {("repeat", "agreed"): 2, ("position", "agreed"): 2}
    asked = [request["messages"][-1]["content"] for request in provider.server.requests]
    swapped = [text.index("At nine.") < text.index("with pleasure") for text in asked]
    assert swapped == [False, False, False, True, False, False, False, True]
    health.close()


def test_people_and_judges_are_compared(telemetry: RecordedTelemetry, provider: Provider) -> None:
    """Of the same answer, whichever comes first; a name of feedback may stand for a criterion."""
    health = started(telemetry, provider.asks(), feedback={"user_feedback": "polite"})

    @monitor(agent="support")
    def referring(question: str) -> tuple[str, str | None]:
        return question, evaluation_reference()

    for thumbs in ("up", "down", "up"):
        _, reference = referring("At ten, with pleasure.")
        record_feedback(reference, thumbs=thumbs)
        assert flush(LIMIT_S)
    assert health.checks == {("people", "agreed"): 2, ("people", "disagreed"): 1}
    (value,) = health.agreements().values()
    assert value == pytest.approx(2 / 3)


def test_another_model_behind_the_same_name_is_counted(
    telemetry: RecordedTelemetry, provider: Provider
) -> None:
    """From 0 on; a provider that alternates between two is not counted again and again."""
    health = started(telemetry, provider.asks())
    for number, model in enumerate(["a", "a", "b", "a", "b", "c"]):
        provider.model = model
        answer(f"At {number}, with pleasure.")
        assert flush(LIMIT_S)
        if number == 1:
            assert list(health.changes_by_model().values()) == [0]
    assert points(telemetry, semconv.METRIC_JUDGE_CHANGES.name) == {(MODEL,): 2}


def test_scores_that_drift_are_noticed_unless_canaries_agree(
    telemetry: RecordedTelemetry, provider: Provider, canaries: Path, tmp_path: Path
) -> None:
    """Against the stored reference of an earlier run; where canaries agree, the answers have
    changed.
    """
    file = tmp_path / "references.json"
    health = started(telemetry, provider.asks(), window=100, reference=str(file))
    for number in range(100):
        answer(
            f"{number}: find out yourself." if number % 10 == 0 else f"At {number}, with pleasure."
        )
    assert flush(LIMIT_S)
    wait_for(file.exists)
    for cleared in (False, True):
        fields = {"canaries": str(canaries)} if cleared else {}
        health = started(telemetry, provider.asks(), window=100, reference=str(file), **fields)
        if cleared:
            rounds(health, 2)
        for number in range(100):
            answer(
                f"{number}: find out yourself."
                if number % 2 == 0
                else f"At {number}, with pleasure."
            )
        assert flush(LIMIT_S)
        (drift,) = health.drifts().values()
        assert drift > 0.5
        assert [value for key, value in health.untrusted().items() if key[-1][1] == "drift"] == [
            1.0
        ] * (not cleared)
        health.close()


@pytest.mark.parametrize("enabled", [True, False])
def test_without_questions_on_top_there_is_no_thread(
    telemetry: RecordedTelemetry, provider: Provider, enabled: bool
) -> None:
    """What costs nothing is on: scores are watched, and no call is made. It can be switched off."""
    started(telemetry, provider.asks(), enabled=enabled)
    answer("At ten, with pleasure.")
    assert flush(LIMIT_S)
    assert len(provider.server.requests) == 1
    watched = {(MODEL,): 0} if enabled else {}
    assert points(telemetry, semconv.METRIC_JUDGE_CHANGES.name) == watched
    assert not is_asking()


def test_two_wordings_of_a_criterion_are_watched_beside_each_other(
    telemetry: RecordedTelemetry, provider: Provider, canaries: Path
) -> None:
    """By two agents; a reload forgets the wording that is gone, with what it was distrusted for."""
    first, second = (
        LLMJudge(f"Is the answer polite{mark}?", criterion_name="polite", judge=provider.judge())
        for mark in ("", " at all")
    )
    provider.wrong_at = "polite at all"
    health = started(telemetry, first, canaries=str(canaries))
    other = monitor(agent="other", evaluators=[second])(lambda question: question)
    for handler in (answer, other):
        handler("At ten, with pleasure.")
    assert flush(LIMIT_S)
    rounds(health, 2)
    assert list(health.agreements().values()) == [0.0]  # of several versions the worst
    assert list(health.untrusted().values()) == [1.0]
    for handler in (answer, other):
        handler("At nine, with pleasure.")
    assert flush(LIMIT_S)
    distrusted = {
        event.attributes[semconv.AGENT_NAME]: semconv.JUDGE_UNTRUSTED in event.attributes
        for event in telemetry.events()[2:]
    }
    assert distrusted == {"support": False, "other": True}
    del other, handler
    gc.collect()
    again = started(telemetry, first, canaries=str(canaries))
    assert list(again.agreements().values()) == [1.0]
    assert again.untrusted() == {}


def test_reload_continues_what_was_seen(
    telemetry: RecordedTelemetry, provider: Provider, canaries: Path
) -> None:
    """With equal settings of judge health; the pipeline before asks nothing any more."""
    first = started(telemetry, provider.asks(), canaries=str(canaries))
    rounds(first, 1)
    second = started(telemetry, provider.asks(), canaries=str(canaries))
    assert second.agreements() == first.agreements() != {}
    asked = len(provider.server.requests)
    rounds(first, 1)
    assert len(provider.server.requests) == asked
    third = started(telemetry, provider.asks(), canaries=str(canaries), tolerance=0.2)
    assert third.agreements() == {}
