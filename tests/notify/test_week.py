"""The weekly summary: its figures, its words, its bounds, and when it is due."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from agenteval_otel import configure, shutdown
from agenteval_otel.config import default_pipeline
from agenteval_otel.engine.capabilities.notify.notifier import Notifier
from agenteval_otel.engine.capabilities.notify.week import MOST_PAIRS, PairFigures, difference
from agenteval_otel.engine.signals import StateChange
from agenteval_otel.models.intervals import Estimate, wilson_interval
from agenteval_otel.testing import RecordedTelemetry
from tests.judge_health.test_watch import Provider
from tests.notify.support import place_of
from tests.notify.test_notifier import Clock, notices, with_clock
from tests.storage.receiver import Answer, receiving

WEEK_S = 7 * 86_400
MONDAY_S = datetime(2026, 11, 23, 9, tzinfo=UTC).timestamp()
DOWN = StateChange("breaker", "openai:m", None, True, 10**18)


def rate_of(passed: int, count: int, *, units: int | None = None) -> Estimate:
    low, high = wilson_interval(passed / count, count)
    return Estimate(passed / count, low, high, count, count, units or count)


def figures(estimate: Estimate | None, **fields: Any) -> PairFigures:
    known: dict[str, Any] = {"is_rate": True, "unknown": 0, "reasons": {}, "errors": {}}
    return PairFigures(estimate, **{**known, **fields})


@pytest.fixture
def clock() -> Clock:
    made = Clock()
    made.now_s = MONDAY_S + 60
    return made


def test_two_weeks_are_compared(telemetry: RecordedTelemetry, clock: Clock) -> None:
    """Real answers: the first week alone, the second with its change, what broke and a link."""
    with receiving(Answer(204)) as receiver:
        place = place_of("webhook", url=receiver.url, pages_url="http://pages", about=["summary"])
        pipeline, notifier = with_clock(telemetry, clock, place)
        ask = pipeline_ask(pipeline)
        ask("good", times=190)
        ask("bad", times=10)
        clock.now_s = MONDAY_S + WEEK_S - 1
        notifier.look()
        assert receiver.requests == []
        clock.now_s = MONDAY_S + WEEK_S + 5
        notifier.look()
        notifier.look()
        ask("good", times=120)
        ask("bad", times=80)
        ask("broken", times=3)
        ask("nothing", times=2)
        notifier.on_change(DOWN)
        clock.now_s += WEEK_S
        notifier.look()
        assert pipeline.shutdown(10.0)
    first_head, first, head, second = notices(receiver)
    assert first_head["text"] == (
        "Week of 23 November to 30 November (UTC): 200 answers were evaluated. "
        "Became bad: objective good of shop. Lost or failed: nothing."
    )
    assert first["text"] == (
        "good of shop: 95.0 % pass (91.0 to 97.3) of 200 answers. Why they fail: no reason code 10."
    )
    assert first["facts"]["mean"] == pytest.approx(0.95)
    assert head["text"].startswith("Week of 30 November to 7 December (UTC): 205 answers were ")
    assert "breaker openai:m. Lost or failed: nothing." in head["text"]
    assert second["text"].startswith(
        "good of shop: 60.0 % pass (53.1 to 66.5) of 200 answers, "
        "35.0 points lower than the week before (95.0 %, difference 27.4 to 42.3)."
    )
    assert "3 could not be evaluated: ValueError 3." in second["text"]
    since = int(MONDAY_S + WEEK_S + 5)
    until = int(clock.now_s) + 1
    assert second["answers_url"] == (
        f"http://pages/answers?criterion=good&agent=shop&outcome=fail&since={since}&until={until}"
    )


def pipeline_ask(pipeline: Any) -> Any:
    """What has the agent of this pipeline answer."""
    from agenteval_otel import monitor

    def ask(answer: str, *, times: int = 1, agent: str = "shop") -> None:
        handler = monitor(agent=agent, pipeline=pipeline)(lambda text: text)
        for _ in range(times):
            handler(answer)

    return ask


def test_a_week_that_began_with_the_process_says_so(
    telemetry: RecordedTelemetry, clock: Clock
) -> None:
    """Also of the week before, in the next one."""
    clock.now_s = MONDAY_S + 3 * 86_400
    with receiving(Answer(204)) as receiver:
        pipeline, notifier = with_clock(telemetry, clock, place_of("webhook", url=receiver.url))
        for week in (1, 2):
            clock.now_s = MONDAY_S + week * WEEK_S + 1
            notifier.look()
        assert pipeline.shutdown(10.0)
    first, second = (notice["text"] for notice in notices(receiver))
    assert "Counted since 26 November 09:00 alone." in first
    assert "The week before is counted since 26 November 09:00 alone." in second
    assert ". Counted since" not in second


def test_each_schedule_has_what_was_lost_in_its_own_week(
    telemetry: RecordedTelemetry, clock: Clock
) -> None:
    """Two time zones: the second summary of the morning has what the first has."""
    with receiving(Answer(204)) as receiver:
        places = [
            place_of("webhook", url=receiver.url, timezone=zone)
            for zone in ("Europe/Berlin", "UTC")
        ]
        pipeline, notifier = with_clock(telemetry, clock, *places)
        pipeline.accounting.fail("storage:sql", 3)
        clock.now_s = MONDAY_S + WEEK_S - 1_800
        notifier.look()
        pipeline.accounting.fail("storage:sql", 2)
        clock.now_s = MONDAY_S + WEEK_S + 1
        notifier.look()
        assert pipeline.shutdown(10.0)
    lost = [notice["facts"]["lost_or_failed"] for notice in notices(receiver)]
    assert sorted(each["storage:sql"] for each in lost) == [3, 5]


def test_pairs_are_bounded(telemetry: RecordedTelemetry, clock: Clock) -> None:
    """What is beyond is counted, and the summary says how much."""
    with receiving(Answer(204)) as receiver:
        pipeline, notifier = with_clock(telemetry, clock, place_of("webhook", url=receiver.url))
        ask = pipeline_ask(pipeline)
        for number in range(MOST_PAIRS + 7):
            ask("good", agent=f"agent {number}")
        clock.now_s += WEEK_S
        notifier.look()
        assert pipeline.shutdown(10.0)
    head, *pairs = notices(receiver)
    assert len(pairs) == MOST_PAIRS
    assert f"7 results are left out: at most {MOST_PAIRS} pairs" in head["text"]


@pytest.mark.parametrize(
    ("now", "before", "words"),
    [
        (figures(None), None, "no score."),
        (figures(rate_of(5, 5)), None, "100.0 % pass of 5 answers, too few for an interval."),
        (
            figures(rate_of(3_999, 4_000)),
            None,
            "99.9 % pass (99.9 to 99.9) of 4,000 answers.",
        ),
        (
            figures(rate_of(90, 100, units=40)),
            figures(rate_of(88, 100)),
            "90.0 % pass (82.6 to 94.5) of 100 answers in 40 conversations or traces, "
            "no clear change to the week before (88.0 %).",
        ),
        (
            figures(rate_of(90, 100)),
            figures(rate_of(9, 10)),
            "90.0 % pass (82.6 to 94.5) of 100 answers, "
            "too few the week before to compare (90.0 %).",
        ),
        (
            figures(rate_of(90, 100)),
            figures(None),
            "90.0 % pass (82.6 to 94.5) of 100 answers, not measured the week before.",
        ),
        (
            figures(Estimate(0.5, 0.4, 0.6, 50, 50.0, 50), is_rate=False),
            figures(Estimate(0.9, 0.85, 0.95, 50, 50.0, 50), is_rate=False),
            "0.50 (0.40 to 0.60) of 50 answers, "
            "0.40 lower than the week before (0.90, difference 0.29 to 0.51).",
        ),
        (
            figures(rate_of(90, 100)._replace(baseline=3), unknown=4),
            None,
            "of 100 answers too few are of the usual kind to tell a rate. "
            "4 more have an unknown probability and count nowhere.",
        ),
    ],
)
def test_figures_are_said_with_what_they_rest_on(
    now: PairFigures, before: PairFigures | None, words: str
) -> None:
    """No interval of few, no change without two of them, and no 100 % that is none."""
    assert now.in_words(before) == words


def test_the_difference_is_newcombes() -> None:
    """Of 56/70 and 48/80, the example of his paper: 0.2 (0.0524 to 0.3339)."""
    value, low, high = difference(rate_of(56, 70), rate_of(48, 80))
    assert (value, low, high) == (
        pytest.approx(0.2),
        pytest.approx(0.0524, abs=1e-4),
        pytest.approx(0.3339, abs=1e-4),
    )


@pytest.mark.parametrize(
    ("now", "due"),
    [
        ("2026-11-30T07:59:59+00:00", "2026-11-30T08:00:00+00:00"),
        ("2026-11-30T08:00:00+00:00", "2026-12-07T08:00:00+00:00"),
        ("2026-12-01T00:00:00+00:00", "2026-12-07T08:00:00+00:00"),
        # the clocks are set back in between
        ("2026-10-24T12:00:00+00:00", "2026-10-26T08:00:00+00:00"),
        ("2026-10-19T08:00:00+00:00", "2026-10-26T08:00:00+00:00"),
    ],
)
def test_a_summary_is_due_at_the_local_time(now: str, due: str) -> None:
    """Daylight saving time applies."""
    place = place_of("webhook", url="http://x", timezone="Europe/Berlin")
    next_s = place.next_summary(datetime.fromisoformat(now).timestamp())
    assert next_s == datetime.fromisoformat(due).timestamp()


@pytest.mark.parametrize("fields", [{"summary": "never"}, {"about": ["judge"]}])
def test_no_summary_is_due(fields: dict[str, Any]) -> None:
    """Where none is wanted."""
    assert place_of("webhook", url="http://x", **fields).next_summary(0.0) is None


@pytest.mark.parametrize(
    ("spend", "words"),
    [
        ({"prices": {"judge-1": {"input": 10_000, "output": 0}}}, "Calls of judges cost 3.00 USD."),
        (None, "3 calls of judges have no known price."),
    ],
)
def test_what_judges_cost_is_in_it(
    telemetry: RecordedTelemetry, clock: Clock, spend: dict[str, Any] | None, words: str
) -> None:
    """A hundred tokens a question, of which the price is known or not."""
    provider = Provider()
    with receiving(Answer(204)) as receiver:
        place = place_of("webhook", url=receiver.url)
        evaluator = provider.asks(spend=spend)
        arguments: dict[str, Any] = {"evaluators": (evaluator,), "objective": None}
        pipeline, notifier = with_clock(telemetry, clock, place, **arguments)
        ask = pipeline_ask(pipeline)
        for number in range(3):
            ask(f"With pleasure, {number}.")
        assert pipeline.flush(30.0)
        clock.now_s += WEEK_S
        notifier.look()
        assert pipeline.shutdown(10.0)
    provider.server.close()
    head, criterion = notices(receiver)
    assert head["text"].endswith(words)
    assert (
        criterion["text"] == "polite of shop: 100.0 % pass of 3 answers, too few for an interval."
    )


def test_a_process_that_does_not_evaluate_sends_nothing() -> None:
    """Its sidecar does, by its own settings."""
    with receiving(Answer(204)) as receiver:
        configure(
            evaluate_in="sidecar",
            endpoint="http://127.0.0.1:1",
            notify=[{"type": "webhook", "url": receiver.url}],
        )
        assert default_pipeline().capabilities.of(Notifier) is None
        shutdown(0.1)
    assert receiver.requests == []
