"""The notifier on the route: what is sent, once, together and not too often, and what is lost."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from agenteval_otel import Settings, configure, flush, monitor, shutdown
from agenteval_otel.config import default_pipeline
from agenteval_otel.engine.capabilities.judge_health import JudgeHealth
from agenteval_otel.engine.capabilities.notify.notifier import Notifier
from agenteval_otel.engine.capabilities.objectives.watch import Objectives, ObjectiveSettings
from agenteval_otel.engine.capability import Capability
from agenteval_otel.engine.pipeline import PoolDispatcher
from agenteval_otel.engine.signals import StateChange
from agenteval_otel.errors import JudgeError
from agenteval_otel.evaluators import LLMJudge
from agenteval_otel.judges import BreakerSettings, Judge, JudgeRequest, Verdict
from agenteval_otel.testing import RecordedTelemetry
from agenteval_otel.ui.answer_list import ListQuery
from agenteval_otel.ui.views import DIMENSIONS, Window, moment_in
from tests.backends.faults import black_hole, refused_port
from tests.judge_health.test_watch import CANARIES, Provider
from tests.notify.support import (
    LOOPBACK,
    SECRET,
    breach,
    mail_server,
    notifier_of,
    notifying,
    place_of,
    recover,
)
from tests.objectives.support import QUICK, Good, pipeline_of
from tests.promises.programs import run_program
from tests.storage.receiver import Answer, Receiver, receiving
from tests.storage.test_real_receivers import wait_for

OK = Answer(body="ok")
JUDGE = StateChange(
    "judge", "helpful", None, True, 10**18, {"judge": "m", "check": "canary", "value": 0.5}
)


class Clock:
    """A clock that tests set."""

    def __init__(self, now_s: float = 1_000_000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def notices(receiver: Receiver) -> list[dict[str, Any]]:
    """All notices that have arrived as JSON."""
    arrived: list[dict[str, Any]] = []
    for request in receiver.requests:
        arrived += request.body["notices"]
    return arrived


def states(receiver: Receiver) -> list[str]:
    return [notice["state"] for notice in notices(receiver)]


def test_a_breach_and_its_recovery_are_sent(telemetry: RecordedTelemetry) -> None:
    """With figures, a link to the answers behind each, and no text of an answer."""
    with receiving(OK) as receiver, mail_server() as mails:
        webhook = place_of("webhook", url=receiver.url, pages_url="http://pages:8629")
        mail = place_of(
            "smtp",
            host=LOOPBACK,
            port=mails.port,
            tls="none",
            sender="a@example.com",
            to=["b@example.com"],
        )
        with notifying(telemetry, webhook, mail) as (pipeline, ask):
            breach(ask)
            assert pipeline.flush(10.0)
            recover(ask)
            assert pipeline.flush(10.0)
            assert pipeline.accounting.failures == {}
    down, up = notices(receiver)
    assert (down["kind"], down["state"], up["state"]) == ("objective", "breached", "recovered")
    assert down["title"] == "breached: good of shop"
    facts = down["facts"]
    assert (facts["criterion"], facts["agent"], facts["objective"]) == ("good", "shop", 0.9)
    assert facts["rate"] < 0.9 <= up["facts"]["rate"]
    assert down["text"].startswith("Objective breached: good of shop passes ")
    address = "http://pages:8629/answers?criterion=good&agent=shop&outcome=fail&since="
    assert down["answers_url"].startswith(address)
    first, second = mails.mails
    assert first["Subject"] == "[agenteval] breached: good of shop"
    assert second["Subject"] == "[agenteval] recovered: good of shop"
    assert "Objective recovered: good of shop passes" in second.get_content()


def test_what_comes_close_together_is_one_message(telemetry: RecordedTelemetry) -> None:
    """Breaches of three agents and a judge, until a flush asks for what waits."""
    with receiving(OK) as receiver:
        place = place_of("webhook", url=receiver.url, group_s=600)
        with notifying(telemetry, place) as (pipeline, ask):
            for agent in ("a", "b", "c"):
                breach(ask, agent=agent)
            pipeline.capabilities.on_change(JUDGE)
            assert receiver.requests == []
            assert pipeline.flush(10.0)
    (request,) = receiver.requests
    assert request.body["title"] == "3 breached, 1 bad"
    assert [notice["facts"].get("agent") for notice in request.body["notices"]] == [
        "a",
        "b",
        "c",
        None,
    ]
    assert "it gives the known answer to 50% of the canaries" in request.body["text"]


def test_the_same_is_sent_once_until_it_is_well(telemetry: RecordedTelemetry) -> None:
    """A judge that several checks distrust is one, and what was never bad is not well again."""
    with (
        receiving(OK) as receiver,
        notifying(telemetry, place_of("webhook", url=receiver.url)) as (pipeline, _),
    ):
        tell = pipeline.capabilities.on_change
        well = JUDGE._replace(is_bad=False)
        for change in (well, JUDGE, JUDGE, JUDGE._replace(facts={**JUDGE.facts, "check": "drift"})):
            tell(change)
        for change in (well, well, JUDGE, JUDGE._replace(part="other")):
            tell(change)
        assert pipeline.flush(10.0)
    assert states(receiver) == ["bad", "well", "bad", "bad"]


def with_clock(
    telemetry: RecordedTelemetry, clock: Clock, *places: Any, **arguments: Any
) -> tuple[Any, Notifier]:
    """A pipeline whose notifier has this clock, for both kinds of time."""
    made = (
        Objectives.made_by(ObjectiveSettings(QUICK)),
        lambda host: Notifier(places, host, clock=clock, time_of_day=clock),
    )
    pipeline, _ = pipeline_of(telemetry, capabilities=made, **arguments)
    pipeline.capabilities.start()
    return pipeline, notifier_of(pipeline)


def test_what_lasts_is_reported_again(telemetry: RecordedTelemetry) -> None:
    """After `remind_s` and not before, and not once it is well."""
    clock = Clock()
    with receiving(OK) as receiver:
        place = place_of("webhook", url=receiver.url, remind_s=3_600)
        pipeline, notifier = with_clock(telemetry, clock, place)
        notifier.on_change(JUDGE)
        for later_s in (3_599.0, 2.0, 100.0, 3_600.0):
            clock.now_s += later_s
            notifier.look()
        notifier.on_change(JUDGE._replace(is_bad=False))
        clock.now_s += 10_000.0
        notifier.look()
        assert pipeline.shutdown(10.0)
    assert [notice["reminder"] for notice in notices(receiver)] == [False, True, True, False]
    assert notices(receiver)[1]["title"] == "still bad: helpful"
    assert "is still not trusted" in notices(receiver)[1]["text"]


def test_reminders_end(telemetry: RecordedTelemetry) -> None:
    """After seven: what was taken out of the settings is never well again."""
    clock = Clock()
    with receiving(OK) as receiver:
        pipeline, notifier = with_clock(telemetry, clock, place_of("webhook", url=receiver.url))
        notifier.on_change(JUDGE)
        for _ in range(20):
            clock.now_s += 90_000.0
            notifier.look()
        assert pipeline.shutdown(10.0)
    reminders = [notice for notice in notices(receiver) if notice["kind"] == "judge"][1:]
    assert [notice["reminder"] for notice in reminders] == [True] * 7


def test_too_many_messages_are_counted_instead(
    telemetry: RecordedTelemetry, caplog: pytest.LogCaptureFixture
) -> None:
    """The next message has their number, and what lasts of them is in it."""
    clock = Clock()
    with receiving(OK) as receiver:
        place = place_of("webhook", url=receiver.url, most_per_hour=2)
        pipeline, notifier = with_clock(telemetry, clock, place)
        for number in range(5):
            notifier.on_change(JUDGE._replace(part=f"criterion {number}"))
            assert pipeline.flush(10.0)
        assert pipeline.accounting.failures == {"notify:capped": 3}
        clock.now_s += 3_601.0
        notifier.look()
        assert pipeline.shutdown(10.0)
    assert len(receiver.requests) == 3
    last = receiver.requests[-1].body
    assert last["left_out"] == 3
    assert [notice["reminder"] for notice in last["notices"]] == [True] * 3
    assert "event='messages_capped' part='notify[0] (webhook at 127.0.0.1)' most=2" in caplog.text


@pytest.mark.parametrize(
    "answers",
    [
        (Answer(500), OK),
        (Answer(503, {}, {"retry-after": "0"}), OK),
        (Answer(429, {}, {"retry-after": "1"}), OK),
    ],
    ids=lambda answers: str(answers[0].status),
)
def test_it_is_sent_again_where_that_may_help(
    telemetry: RecordedTelemetry, answers: tuple[Answer, ...]
) -> None:
    """Not before the place asks for, with the same id."""
    with receiving(*answers) as receiver:
        place = place_of("webhook", url=receiver.url)
        with notifying(telemetry, place) as (pipeline, _):
            pipeline.capabilities.on_change(JUDGE)
            assert pipeline.flush(20.0)
            assert pipeline.accounting.failures == {}
    first, second = receiver.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    asked_s = float(answers[0].headers.get("retry-after", 0))
    assert second.at - first.at >= asked_s


@pytest.mark.parametrize("answer", [Answer(404), Answer(302, {}, {"location": "/x"}), Answer(400)])
def test_what_is_refused_is_counted_and_logged(
    telemetry: RecordedTelemetry, caplog: pytest.LogCaptureFixture, answer: Answer
) -> None:
    """Once, without the address."""
    with receiving(answer) as receiver:
        place = place_of("slack", url=f"{receiver.url}/{SECRET}")
        with notifying(telemetry, place) as (pipeline, _):
            pipeline.capabilities.on_change(JUDGE)
            assert pipeline.flush(10.0)
            assert pipeline.accounting.failures == {"notify:slack": 1}
    assert len(receiver.requests) == 1
    assert f"slack at 127.0.0.1: answered with status {answer.status}" in caplog.text
    assert "event='message_not_sent'" in caplog.text
    assert SECRET not in caplog.text


def test_one_that_never_answers_gets_it_three_times(telemetry: RecordedTelemetry) -> None:
    """It may have taken each, and people would get it again and again."""
    never = threading.Event()
    with receiving(Answer(wait=never)) as receiver:
        place = place_of("webhook", url=receiver.url, timeout_s=0.1)
        with notifying(telemetry, place) as (pipeline, _):
            pipeline.capabilities.on_change(JUDGE)
            assert pipeline.flush(30.0)
            assert pipeline.accounting.failures == {"notify:webhook": 1}
            assert len(receiver.requests) == 3
        never.set()


def test_what_was_lost_is_reported_again_while_it_lasts(telemetry: RecordedTelemetry) -> None:
    """Ten minutes later, and not a day."""
    clock = Clock()
    with receiving(Answer(404), OK) as receiver:
        pipeline, notifier = with_clock(telemetry, clock, place_of("webhook", url=receiver.url))
        notifier.on_change(JUDGE)
        assert pipeline.flush(10.0)
        for later_s in (590.0, 11.0):
            notifier.look()
            clock.now_s += later_s
        notifier.look()
        assert pipeline.shutdown(10.0)
    assert [notice["reminder"] for notice in notices(receiver)] == [False, True]


def test_a_place_that_answers_wrongly_gets_it_ever_less_often(
    telemetry: RecordedTelemetry,
) -> None:
    """It may have taken each: it gets the message and seven repetitions at most."""
    clock = Clock()
    begun_s = clock.now_s
    sent_s: list[float] = []
    with receiving(Answer(body="accepted")) as receiver:
        pipeline, notifier = with_clock(
            telemetry, clock, place_of("slack", url=receiver.url, about=["judge"])
        )
        notifier.on_change(JUDGE)
        for _ in range(11 * 24 * 6):
            assert pipeline.flush(10.0)
            sent_s += [clock.now_s - begun_s] * (len(receiver.requests) - len(sent_s))
            clock.now_s += 601.0
            notifier.look()
        assert pipeline.shutdown(10.0)
    assert len(sent_s) == 8
    assert sent_s[1] < 700
    assert sent_s[2] - sent_s[1] > 3_600
    assert sent_s[3] - sent_s[2] > 86_400


def test_what_some_recipients_got_is_not_sent_again(
    telemetry: RecordedTelemetry, caplog: pytest.LogCaptureFixture
) -> None:
    """The server refuses one of two addresses: that is counted and logged."""
    clock = Clock()
    to = ["unknown@example.com", "me@example.com"]
    with mail_server() as server:
        place = place_of(
            "smtp", host=LOOPBACK, port=server.port, tls="none", sender="a@example.com", to=to
        )
        pipeline, notifier = with_clock(telemetry, clock, place)
        notifier.on_change(JUDGE)
        assert pipeline.flush(10.0)
        for _ in range(3):
            clock.now_s += 1_000.0
            notifier.look()
        assert pipeline.accounting.failures == {"notify:smtp": 1}
        assert pipeline.shutdown(10.0)
    assert [envelope.rcpt_tos for envelope in server.envelopes] == [["me@example.com"]]
    assert "event='message_partly_refused'" in caplog.text
    assert "1 recipients were refused" in caplog.text


def test_messages_that_may_have_arrived_count_as_messages(telemetry: RecordedTelemetry) -> None:
    """A chat that answers wrongly gets no more of them than `most_per_hour`."""
    with receiving(Answer(body="accepted")) as receiver:
        place = place_of("slack", url=receiver.url, most_per_hour=2)
        with notifying(telemetry, place) as (pipeline, _):
            for number in range(5):
                pipeline.capabilities.on_change(JUDGE._replace(part=f"criterion {number}"))
                assert pipeline.flush(10.0)
            assert pipeline.accounting.failures == {"notify:slack": 2, "notify:capped": 3}
    assert len(receiver.requests) == 2


def test_a_reminder_links_to_the_answers_until_it_is_sent(telemetry: RecordedTelemetry) -> None:
    """From the first answer behind the breach."""
    clock = Clock()
    with receiving(OK) as receiver:
        place = place_of("webhook", url=receiver.url, pages_url="http://127.0.0.1:8629")
        made = (
            Objectives.made_by(ObjectiveSettings(QUICK)),
            lambda host: Notifier([place], host, clock=clock),
        )
        pipeline, ask = pipeline_of(telemetry, capabilities=made)
        pipeline.capabilities.start()
        breach(ask)
        ask("bad", times=5)
        clock.now_s += 90_000.0
        before_s = int(time.time())
        notifier_of(pipeline).look()
        assert pipeline.shutdown(10.0)
    first, reminder = (dict(parse_qsl(urlsplit(n["answers_url"]).query)) for n in notices(receiver))
    assert reminder["since"] == first["since"]
    assert int(reminder["until"]) >= before_s


def test_one_notice_does_not_take_the_attempts_of_another(telemetry: RecordedTelemetry) -> None:
    """Each is sent three times, although the place never answers."""
    never = threading.Event()
    with receiving(Answer(wait=never)) as receiver:
        place = place_of("webhook", url=receiver.url, timeout_s=0.2)
        with notifying(telemetry, place) as (pipeline, _):
            pipeline.capabilities.on_change(JUDGE)
            wait_for(lambda: len(receiver.requests) == 2)
            pipeline.capabilities.on_change(JUDGE._replace(part="short"))
            wait_for(lambda: pipeline.accounting.failures == {"notify:webhook": 2})
        never.set()
    parts = [notice["facts"]["part"] for notice in notices(receiver)]
    assert parts.count("short") == 3


def test_a_message_that_is_sent_again_is_the_same(telemetry: RecordedTelemetry) -> None:
    """It keeps its id and its notices. What comes meanwhile is the next message."""
    again = threading.Event()
    answers = (Answer(503, {}, {"retry-after": "0"}), Answer(503, {}, {"retry-after": "0"}, again))
    with receiving(*answers, OK) as receiver:
        place = place_of("webhook", url=receiver.url)
        with notifying(telemetry, place) as (pipeline, _):
            pipeline.capabilities.on_change(JUDGE)
            wait_for(lambda: len(receiver.requests) == 2)
            pipeline.capabilities.on_change(JUDGE._replace(part="later"))
            again.set()
            assert pipeline.flush(20.0)
            assert pipeline.accounting.failures == {}
    ids = [request.headers["webhook-id"] for request in receiver.requests]
    assert len(set(ids)) == 2
    assert ids[0] == ids[1] == ids[2] != ids[3]
    parts = [notice["facts"]["part"] for notice in notices(receiver)]
    assert parts == ["helpful", "helpful", "helpful", "later"]


def test_what_is_left_out_is_in_one_message(telemetry: RecordedTelemetry) -> None:
    """The number goes with the message that has it, and what is left out meanwhile with the next."""
    clock = Clock()
    again = threading.Event()
    answers = (OK, Answer(503, {}, {"retry-after": "0"}), Answer(503, {}, {}, again), OK)
    with receiving(*answers) as receiver:
        place = place_of("webhook", url=receiver.url, most_per_hour=1)
        pipeline, notifier = with_clock(telemetry, clock, place)
        for part in ("first", "left out"):
            notifier.on_change(JUDGE._replace(part=part))
            assert pipeline.flush(10.0)
        clock.now_s += 3_601.0
        notifier.on_change(JUDGE._replace(part="delayed"))
        wait_for(lambda: len(receiver.requests) == 3)
        again.set()
        assert pipeline.flush(20.0)
        clock.now_s += 3_601.0
        notifier.on_change(JUDGE._replace(part="last"))
        assert pipeline.shutdown(10.0)
    numbers = [request.body["left_out"] for request in receiver.requests]
    assert numbers == [0, 1, 1, 1, 0]


def test_a_place_that_hangs_holds_up_neither_answers_nor_other_places(
    telemetry: RecordedTelemetry,
) -> None:
    """Answers are evaluated and the other place has its messages while the first one waits."""
    with black_hole() as hole, receiving(OK) as receiver:
        hung = place_of("slack", url=f"{hole.endpoint}/{SECRET}", timeout_s=60)
        other = place_of("webhook", url=receiver.url)
        with notifying(telemetry, hung, other, dispatcher=PoolDispatcher()) as (pipeline, ask):
            breach(ask)
            assert hole.wait_for_connection(10.0)
            recover(ask)
            assert pipeline.dispatcher.flush(30.0)
            assert pipeline.accounting.outcomes()["evaluated"] == 260
            while states(receiver) != ["breached", "recovered"]:
                assert receiver.arrived.wait(10.0)
                receiver.arrived.clear()
            # what belongs to answers is delivered: a journal forgets them
            assert pipeline.export(10.0)
            assert pipeline.flush(0.2)
            hole.close()
            pipeline.shutdown(0.5)
            assert pipeline.accounting.failures["notify:slack"] == 2


def test_what_waits_at_the_end_is_counted(telemetry: RecordedTelemetry) -> None:
    """Nothing listens, and the process ends. All answers are delivered nevertheless."""
    with refused_port() as port:
        place = place_of("slack", url=f"http://127.0.0.1:{port}")
        with notifying(telemetry, place) as (pipeline, ask):
            breach(ask)
            assert pipeline.shutdown(0.5)
            assert pipeline.accounting.failures == {"notify:slack": 1}


def test_only_what_it_is_about_is_sent(telemetry: RecordedTelemetry) -> None:
    """A place may hear of judges alone."""
    with receiving(OK) as receiver:
        place = place_of("webhook", url=receiver.url, about=["judge"])
        with notifying(telemetry, place) as (pipeline, ask):
            breach(ask)
            pipeline.capabilities.on_change(JUDGE)
            assert pipeline.flush(10.0)
    assert [notice["kind"] for notice in notices(receiver)] == ["judge"]


def test_a_pipeline_that_is_not_the_processs_sends_nothing(telemetry: RecordedTelemetry) -> None:
    """As one that replays recorded answers."""
    with receiving(OK) as receiver:
        made = Notifier.made_by([place_of("webhook", url=receiver.url)])
        watch = Objectives.made_by(ObjectiveSettings(QUICK))
        pipeline, ask = pipeline_of(telemetry, capabilities=(watch, made))
        breach(ask)
        assert pipeline.shutdown(10.0)
    assert receiver.requests == []


def test_another_pipeline_continues(telemetry: RecordedTelemetry) -> None:
    """What the one before has reported is not reported again, and its recovery is."""
    with receiving(OK) as receiver:
        place = place_of("webhook", url=receiver.url)
        with notifying(telemetry, place) as (before, ask_before):
            breach(ask_before)
            with notifying(telemetry, place) as (pipeline, ask):
                pipeline.capabilities.take_over(before.capabilities)
                before.retire()
                pipeline.capabilities.on_change(JUDGE)
                before.capabilities.on_change(JUDGE)
                recover(ask)
                assert pipeline.flush(10.0)
    assert states(receiver) == ["breached", "bad", "recovered"]


def test_the_same_settings_again_leave_one_thread_that_looks(telemetry: RecordedTelemetry) -> None:
    """However often they are applied."""

    def looking() -> list[str]:
        names = [thread.name for thread in threading.enumerate()]
        return [name for name in names if name == "agenteval-notify"]

    with receiving(OK) as receiver:
        settings = Settings(
            storage=[telemetry.storage()],
            evaluators=[Good()],
            notify=[{"type": "webhook", "url": receiver.url}],
        )
        for _ in range(3):
            configure(settings)
        wait_for(lambda: len(looking()) == 1)
        assert shutdown(10)
    wait_for(lambda: not looking())
    assert looking() == []


class Unreachable(Judge, type="notify-unreachable"):
    """A judge whose endpoint fails until it is mended."""

    breaker: BreakerSettings | None = BreakerSettings(failures=2, open_s=1e-9)

    async def judge(self, request: JudgeRequest) -> Verdict:
        if self.model == "broken" and not MENDED:
            raise JudgeError("away", error_type="connection_error", retryable=True)
        return Verdict(answer={"score": 1, "reasoning": "fine"})


MENDED: list[bool] = []


def test_an_open_circuit_breaker_is_sent(telemetry: RecordedTelemetry) -> None:
    """And that it is closed again. Half open is neither."""
    judge = Unreachable(model="broken", breaker=BreakerSettings(failures=2, open_s=0.3))
    with receiving(OK) as receiver:
        place = place_of("webhook", url=receiver.url)
        evaluators = (LLMJudge(judge=judge, criterion_name="kind"),)
        arguments: dict[str, Any] = {"evaluators": evaluators, "objective": None}
        with notifying(telemetry, place, **arguments) as (pipeline, ask):
            notifier = notifier_of(pipeline)
            notifier.look()
            ask("an answer", times=2)
            breaker = judge.guarded().breaker
            assert breaker is not None
            assert breaker.state == "open"
            notifier.look()
            wait_for(lambda: breaker.state == "half_open")
            notifier.look()
            MENDED.append(True)
            ask("an answer")
            assert breaker.state == "closed"
            notifier.look()
            assert pipeline.flush(10.0)
    down, up = notices(receiver)
    assert (down["kind"], down["state"], up["state"]) == ("breaker", "bad", "well")
    assert down["title"] == "bad: notify-unreachable:broken"
    assert "its endpoint failed again and again" in down["text"]


def test_a_judge_that_gets_its_canaries_wrong_is_sent(
    telemetry: RecordedTelemetry, tmp_path: Path
) -> None:
    """By the settings, through a real client, and that it is trusted again."""
    file = tmp_path / "canaries.jsonl"
    file.write_text("\n".join(map(json.dumps, CANARIES)))
    provider = Provider()
    with receiving(OK) as receiver:
        configure(
            storage=[telemetry.storage()],
            sample_rate=1.0,
            evaluators=[provider.asks()],
            judge_health={"canaries": file},
            notify=[{"type": "webhook", "url": receiver.url, "group_s": 0}],
        )
        health = default_pipeline().capabilities.of(JudgeHealth)
        assert health is not None
        provider.is_right = False
        while not notices(receiver):
            health.ask_canaries()
            assert flush(30)
        provider.is_right = True
        while len(notices(receiver)) < 2:
            health.ask_canaries()
            assert flush(30)
        assert shutdown(10)
    provider.server.close()
    down, up = notices(receiver)
    assert (down["kind"], down["state"], up["state"]) == ("judge", "bad", "well")
    assert down["facts"]["criterion"] == "polite"
    assert down["facts"]["judge"] == "judge-1"
    assert down["text"].startswith(
        "The judge judge-1 on polite is not trusted: it gives the known answer to "
    )
    assert up["text"] == "The judge judge-1 on polite is trusted again."


def test_an_evaluator_that_is_not_run_any_more_is_sent(telemetry: RecordedTelemetry) -> None:
    """Once, although every look sees it."""
    with receiving(OK) as receiver:
        place = place_of("webhook", url=receiver.url)
        with notifying(telemetry, place) as (pipeline, ask):
            ask("good")
            (evaluator,) = pipeline.handler("shop").runner.evaluators
            for _ in range(3):
                pipeline.executor.state(evaluator).strike("it hangs")
                notifier_of(pipeline).look()
            notifier_of(pipeline).look()
            assert pipeline.flush(10.0)
    (notice,) = notices(receiver)
    assert (notice["kind"], notice["title"]) == ("evaluator", "bad: ObjectiveTestGood:good")
    assert "three times it overran its time limit" in notice["text"]


def test_one_of_two_evaluators_of_a_name_makes_it_bad_once(telemetry: RecordedTelemetry) -> None:
    """Two agents have an evaluator of the same name, and one of them is not run any more."""
    with receiving(OK) as receiver:
        place = place_of("webhook", url=receiver.url)
        with notifying(telemetry, place) as (pipeline, ask):
            ask("good")
            monitor(agent="other", pipeline=pipeline, evaluators=(Good(),))(lambda text: text)(
                "good"
            )
            (evaluator,) = pipeline.handler("shop").runner.evaluators
            for _ in range(3):
                pipeline.executor.state(evaluator).strike("it hangs")
            for _ in range(3):
                notifier_of(pipeline).look()
            assert pipeline.flush(10.0)
    assert states(receiver) == ["bad"]


def test_an_evaluators_end_reaches_other_capabilities(telemetry: RecordedTelemetry) -> None:
    """As what they watch reaches this one."""
    heard: list[StateChange] = []

    class Hears(Capability):
        def on_change(self, change: StateChange) -> None:
            heard.append(change)

    with receiving(OK) as receiver:
        made = Notifier.made_by([place_of("webhook", url=receiver.url)])
        pipeline, ask = pipeline_of(telemetry, capabilities=(made, lambda host: Hears()))
        pipeline.capabilities.start()
        ask("good")
        (evaluator,) = pipeline.handler("shop").runner.evaluators
        for _ in range(3):
            pipeline.executor.state(evaluator).strike("it hangs")
        notifier_of(pipeline).look()
        assert pipeline.shutdown(10.0)
    assert [(change.kind, change.is_bad) for change in heard] == [("evaluator", True)]
    assert states(receiver) == ["bad"]


def test_the_link_is_read_by_the_list_of_answers(telemetry: RecordedTelemetry) -> None:
    """It leads to the failed answers of this criterion and agent, since the first that counts."""
    with receiving(OK) as receiver:
        place = place_of("webhook", url=receiver.url, pages_url="http://pages")
        with notifying(telemetry, place) as (pipeline, ask):
            before_s = int(time.time())
            breach(ask, agent="a&b=c #1")
            assert pipeline.flush(10.0)
    (notice,) = notices(receiver)
    address = urlsplit(notice["answers_url"])
    assert (address.scheme, address.netloc, address.path) == ("http", "pages", "/answers")
    read = dict(parse_qsl(address.query))
    window = Window(since=moment_in(read["since"]), until=moment_in(read["until"]))
    query = ListQuery.read(read, window, DIMENSIONS)
    assert query.names == {"criterion": "good", "agent": "a&b=c #1"}
    assert query.outcome == "fail"
    assert query.window == window
    assert window.since is not None
    assert window.until is not None
    assert before_s <= window.since < window.until


FORK = """
    import os, sys
    from agenteval_otel import accounting, configure, flush, monitor, shutdown
    from agenteval_otel.evaluators import Func

    good = Func.of(lambda value: value.response_text == "good", criterion_name="good")
    configure(
        evaluators=[good],
        criteria={"default": [{"name": "good", "objective": 0.9, "independent": True}]},
        breach={"false_alarm_every": 500, "minimum": 10}, sample_rate=1.0,
        notify=[{"type": "webhook", "url": sys.argv[1], "group_s": 0}],
    )

    @monitor(agent="shop")
    def answer(text):
        return text

    def breach():
        for text in ["good"] * 20 + ["bad"] * 40:
            answer(text)
        return flush(20)

    assert breach()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if breach() else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print("child", code)
    print("parent", shutdown(10))
"""


def test_a_forked_child_sends_its_own() -> None:
    """What the parent reported is the parent's: both have a breach of their own."""
    with receiving(OK) as receiver:
        ended = run_program(FORK, receiver.url)
    assert ended.lines("child") == ["0"], ended.stderr
    assert ended.lines("parent") == ["True"]
    assert states(receiver) == ["breached", "breached"]
    processes = {request.body["source"]["process"] for request in receiver.requests}
    assert len(processes) == 2
