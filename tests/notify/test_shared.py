"""Several processes that name one file: one message of what they all see, and none is lost."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenteval_otel.components.database.sqlite_store import open_sqlite
from agenteval_otel.engine.capabilities.notify import MessagePlace
from agenteval_otel.engine.capabilities.notify.notices import Notice
from agenteval_otel.engine.capabilities.notify.notifier import Notifier
from agenteval_otel.engine.capabilities.notify.shared import SharedNotice, SharedStates
from agenteval_otel.engine.capabilities.objectives.watch import Objectives, ObjectiveSettings
from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.telemetry import Accounting
from agenteval_otel.testing import RecordedTelemetry
from tests.notify.support import Ask, breach, notifier_of, notifying, place_of, recover
from tests.notify.test_notifier import JUDGE, OK, Clock, notices, states
from tests.objectives.support import QUICK, pipeline_of
from tests.promises.programs import run_program, started_program
from tests.storage.receiver import Answer, receiving
from tests.storage.test_real_receivers import wait_for

WELL = JUDGE._replace(is_bad=False)
MONITORED = """
    import os, sys
    from agenteval_otel import accounting, configure, flush, monitor, shutdown
    from agenteval_otel.evaluators import Func

    good = Func.of(lambda value: value.response_text == "good", criterion_name="good")
    configure(
        evaluators=[good],
        criteria={"default": [{"name": "good", "objective": 0.9, "independent": True}]},
        breach={"false_alarm_every": 500, "minimum": 10}, sample_rate=1.0,
        notify={"webhook": {"url": sys.argv[1], "group_s": 0, "shared_file": sys.argv[2]}},
    )

    @monitor(agent="shop")
    def answer(text):
        return text
"""
WORKER = (
    MONITORED
    + """
    for line in sys.stdin:
        for text in {"break": ["good"] * 20 + ["bad"] * 40, "mend": ["good"] * 200}[line.strip()]:
            answer(text)
        print("sent", flush(20), accounting().get("failed", 0), flush=True)
    print("end", shutdown(10), flush=True)
"""
)


def sharing(
    telemetry: RecordedTelemetry, clock: Clock, place: MessagePlace
) -> tuple[Pipeline, Notifier, Ask]:
    """A pipeline that has begun to send, with this clock, and what has its agent answer."""
    made = (
        Objectives.made_by(ObjectiveSettings(QUICK)),
        lambda host: Notifier([place], host, clock=clock, time_of_day=clock),
    )
    pipeline, ask = pipeline_of(telemetry, capabilities=made)
    pipeline.capabilities.start()
    return pipeline, notifier_of(pipeline), ask


def command(worker: subprocess.Popen[str], word: str) -> None:
    assert worker.stdin is not None
    worker.stdin.write(f"{word}\n")
    worker.stdin.flush()


def wait_until_sent(worker: subprocess.Popen[str]) -> None:
    """Until it has evaluated its answers, and sent what it sends."""
    assert worker.stdout is not None
    assert worker.stdout.readline().startswith("sent True")


def test_workers_of_a_service_send_one_message(tmp_path: Path) -> None:
    """Four processes see the same drop at once. The last one that is well again says so."""
    with receiving(OK) as receiver, ExitStack() as stack:
        arguments = (receiver.url, str(tmp_path / "notify.db"))
        workers = [
            stack.enter_context(started_program(WORKER, *arguments, OTEL_SERVICE_NAME="shop"))
            for _ in range(4)
        ]
        for worker in workers:
            command(worker, "break")
        for worker in workers:
            wait_until_sent(worker)
        assert states(receiver) == ["breached"]
        for number, worker in enumerate(workers):
            assert states(receiver) == ["breached"], f"{number} are well again"
            command(worker, "mend")
            wait_until_sent(worker)
        assert states(receiver) == ["breached", "recovered"]
        assert receiver.requests[1].body["source"]["process"] == workers[-1].pid
        command(workers[0], "break")
        wait_until_sent(workers[0])
        assert states(receiver)[2:] == ["breached"]


FORKS = (
    MONITORED
    + """
    def work(texts):
        for text in texts:
            answer(text)
        return flush(20)

    drop, mend = ["good"] * 20 + ["bad"] * 40, ["good"] * 200
    work(["good"])
    child, parent = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        assert os.read(child[0], 1) == b"b" and work(drop)
        os.write(parent[1], b"b")
        assert os.read(child[0], 1) == b"m" and work(mend)
        os._exit(0)
    assert work(drop)
    os.write(child[1], b"b")
    assert os.read(parent[0], 1) == b"b"
    assert work(mend)
    os.write(child[1], b"m")
    print("child", pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    print("parent", shutdown(10))
"""
)


def test_forked_workers_send_one_message(tmp_path: Path) -> None:
    """As those of a server that loads the application first: each is a process of its own."""
    with receiving(OK) as receiver:
        ended = run_program(FORKS, receiver.url, str(tmp_path / "notify.db"))
    assert ended.lines("parent") == ["True"], ended.stderr
    child, code = ended.lines("child")[0].split()
    assert code == "0", ended.stderr
    assert states(receiver) == ["breached", "recovered"]
    first, last = (request.body["source"]["process"] for request in receiver.requests)
    assert first != last == int(child)


def test_services_that_share_a_file_send_their_own(tmp_path: Path) -> None:
    with receiving(OK) as receiver, ExitStack() as stack:
        for service in ("shop", "support"):
            file = str(tmp_path / "notify.db")
            worker = stack.enter_context(
                started_program(WORKER, receiver.url, file, OTEL_SERVICE_NAME=service)
            )
            command(worker, "break")
            wait_until_sent(worker)
    assert [request.body["source"]["service"] for request in receiver.requests] == [
        "shop",
        "support",
    ]


@pytest.mark.parametrize("is_taken", [False, True])
def test_another_process_speaks_for_one_that_was_killed(
    telemetry: RecordedTelemetry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_taken: bool
) -> None:
    """After a minute. It repeats what the place may not have, and is the one that sends the recovery."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    file = tmp_path / "notify.db"
    never = threading.Event()
    clock = Clock(time.time())
    with receiving(OK if is_taken else Answer(wait=never), OK) as receiver:
        place = place_of("webhook", url=receiver.url, shared_file=file, remind_s=3_600)
        with started_program(WORKER, receiver.url, str(file), OTEL_SERVICE_NAME="shop") as worker:
            command(worker, "break")
            wait_for(lambda: states(receiver) == ["breached"])
            if is_taken:
                wait_until_sent(worker)
                wait_for(lambda: rows(file) == [("bad", 1, 1)])
            worker.kill()
            clock.now_s = time.time()
        pipeline, notifier, ask = sharing(telemetry, clock, place)
        breach(ask)
        assert pipeline.flush(10.0)
        notifier.look()
        assert pipeline.flush(10.0)
        assert states(receiver) == ["breached"], "the other one still counts as alive"
        clock.now_s += 61.0
        notifier.look()
        assert pipeline.flush(10.0)
        assert len(receiver.requests) == 2 - is_taken
        clock.now_s += 3_600.0
        notifier.look()
        assert pipeline.flush(10.0)
        recover(ask)
        assert pipeline.shutdown(10.0)
        never.set()
    sent = [(notice["state"], notice["reminder"]) for notice in notices(receiver)]
    repeated = [("breached", True)] * (2 - is_taken)
    assert sent == [("breached", False), *repeated, ("recovered", False)]
    assert rows(file) == []


def test_a_recovery_waits_for_the_process_that_is_bad(
    telemetry: RecordedTelemetry, tmp_path: Path
) -> None:
    """And is sent once it ends, by one process alone. Reminders come from one process too."""
    clock = Clock(time.time())
    with receiving(OK) as receiver:
        place = place_of("webhook", url=receiver.url, shared_file=tmp_path / "notify.db")
        parts = [sharing(telemetry, clock, place)[:2] for _ in range(3)]
        for pipeline, notifier in parts:
            notifier.on_change(JUDGE)
            assert pipeline.flush(10.0)
        clock.now_s += 30.0
        for _, notifier in parts:
            notifier.look()
        clock.now_s += 50.0
        (ends, _), *others = parts
        for pipeline, notifier in others:
            notifier.on_change(JUDGE._replace(is_bad=False))
            notifier.look()
            assert pipeline.flush(10.0)
        assert states(receiver) == ["bad"]
        assert ends.shutdown(10.0)
        for pipeline, notifier in others:
            wait_for(lambda: all(state == "over" for state, *_ in rows(place.shared_file)))
            notifier.look()
            assert pipeline.flush(10.0)
        assert states(receiver) == ["bad", "well"]
        for pipeline, notifier in others:
            notifier.on_change(JUDGE)
            assert pipeline.flush(10.0)
        clock.now_s += 50.0
        for _, notifier in others:
            notifier.look()
        clock.now_s += 86_400.0
        for pipeline, notifier in others:
            notifier.look()
            assert pipeline.flush(10.0)
        for pipeline, _ in others:
            assert pipeline.shutdown(10.0)
    assert [notice["reminder"] for notice in notices(receiver)] == [False, False, False, True]


@pytest.mark.parametrize("fault", ["no database", "locked", "no folder"])
def test_without_the_file_each_process_sends_its_own(
    telemetry: RecordedTelemetry,
    tmp_path: Path,
    fault: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """That is counted and logged, and nothing is silent."""
    file = tmp_path / "notify.db"
    with receiving(OK) as receiver, ExitStack() as stack:
        if fault == "no database":
            file.write_text("not a database\n" * 100)
        elif fault == "no folder":
            file.write_text("")
            file = file / "notify.db"
        else:
            lock = stack.enter_context(closing(open_sqlite(file, timeout_s=1)))
            lock.execute("BEGIN EXCLUSIVE")
        place = place_of("webhook", url=receiver.url, shared_file=file)
        for _ in range(2):
            pipeline, notifier, _ = sharing(telemetry, Clock(time.time()), place)
            for change in (JUDGE, WELL):
                notifier.on_change(change)
                assert pipeline.flush(20.0)
            notifier.look()
            assert pipeline.accounting.failures == {"notify:shared_file": 2}
            assert pipeline.shutdown(10.0)
    assert states(receiver) == ["bad", "well"] * 2
    assert "event='notify_file_unusable'" in caplog.text


def test_two_places_and_a_summary_are_not_mixed_up(
    telemetry: RecordedTelemetry, tmp_path: Path
) -> None:
    """Each place has its own messages, although the processes name one file."""
    file = tmp_path / "notify.db"
    with receiving(OK) as receiver:
        places = [
            place_of("webhook", url=f"{receiver.url}/{name}", shared_file=file)
            for name in ("first", "second")
        ]
        for _ in range(2):
            with notifying(telemetry, *places) as (pipeline, _):
                pipeline.capabilities.on_change(JUDGE)
                assert pipeline.flush(10.0)
                pipeline.capabilities.on_change(WELL)
                assert pipeline.flush(10.0)
    assert sorted(request.path for request in receiver.requests) == ["/first"] * 4 + ["/second"] * 4
    assert oct(file.stat().st_mode & 0o777) == "0o600"


def rows(file: Path | None) -> list[tuple[str, int, int]]:
    """What the file has of each process: its state, whether it speaks, whether its message is taken."""
    assert file is not None
    with closing(open_sqlite(file, timeout_s=5)) as connection:
        return connection.execute("SELECT state, speaks, taken FROM states").fetchall()


SUBJECT = "good of shop"
BREACHED = Notice("", "objective", "breached", "breached", "", 10**18)
RECOVERED = Notice("", "objective", "recovered", "recovered", "", 10**18)


class Processes:
    """Several processes over a file, and the messages that have reached the place."""

    def __init__(self, file: Path) -> None:
        self.clock = Clock()
        self.messages: list[str] = []
        self._file = file
        self.bad = [False] * 3
        self._states = [self._process() for _ in self.bad]

    def _process(self) -> SharedStates:
        return SharedStates(self._file, Accounting(), clock=self.clock)

    def _sends(self, number: int, notice: Notice) -> bool:
        (is_here,) = asyncio.run(
            self._states[number].are_sent_here([SharedNotice(SUBJECT, notice)])
        )
        return is_here

    def break_(self, number: int) -> None:
        if not self.bad[number]:
            self.bad[number] = True
            if self._sends(number, BREACHED):
                self._arrives(number, "breached")

    def break_and_die(self, number: int) -> None:
        """Before its message is sent."""
        if not self.bad[number]:
            self._sends(number, BREACHED)
            self.die(number)

    def mend(self, number: int) -> None:
        if self.bad[number]:
            self.bad[number] = False
            if self._sends(number, RECOVERED):
                self.messages.append("recovered")

    def die(self, number: int) -> None:
        """Another one takes its place, and knows nothing of it."""
        self.bad[number] = False
        self._states[number] = self._process()

    def look(self, number: int) -> None:
        refreshed = self._states[number].refresh()
        self.messages += ["recovered"] * len(refreshed.recoveries)
        if refreshed.repeated and self._sends(number, BREACHED._replace(reminder=True)):
            self._arrives(number, "breached")

    def _arrives(self, number: int, message: str) -> None:
        self.messages.append(message)
        self._states[number].note_taken([SUBJECT])

    def look_all(self) -> None:
        for number in range(len(self.bad)):
            self.look(number)

    def pass_time(self) -> None:
        """A minute and more, in which each looks several times."""
        for _ in range(7):
            self.clock.now_s += 10.0
            self.look_all()


STEPS = st.tuples(st.sampled_from(["break_", "mend", "look"]), st.integers(0, 2))
ENDS = st.tuples(
    st.sampled_from(["break_", "mend", "look", "die", "break_and_die"]), st.integers(0, 2)
)


@given(st.lists(STEPS, max_size=20))
@settings(deadline=None, max_examples=60)
def test_messages_alternate_whatever_the_order(steps: list[tuple[str, int]]) -> None:
    """A breach while any process is bad, and a recovery once none is. None is sent twice."""
    with tempfile.TemporaryDirectory() as folder:
        processes = Processes(Path(folder) / "notify.db")
        for step, number in steps:
            getattr(processes, step)(number)
            pairs = ["breached", "recovered"] * len(steps)
            assert processes.messages == pairs[: len(processes.messages)]
            assert len(processes.messages) % 2 == any(processes.bad)


@given(st.lists(ENDS, max_size=20))
@settings(deadline=None, max_examples=60)
def test_nothing_is_silent_whoever_is_killed(steps: list[tuple[str, int]]) -> None:
    """After a minute the place knows of what is bad in a process that lives."""
    with tempfile.TemporaryDirectory() as folder:
        processes = Processes(Path(folder) / "notify.db")
        for step, number in steps:
            getattr(processes, step)(number)
        processes.pass_time()
        if any(processes.bad):
            assert processes.messages[-1] == "breached"
        sent = len(processes.messages)
        processes.pass_time()
        assert len(processes.messages) == sent, "and once is enough"
        recoveries = ["recovered"] if any(processes.bad) else []
        for number in range(3):
            processes.mend(number)
        processes.pass_time()
        assert processes.messages[sent:] == recoveries
