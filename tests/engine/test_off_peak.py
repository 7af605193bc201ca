"""Off-peak evaluators: an answer waits on the disk, over a restart, and its results come late, in
its trace.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from agenteval_otel import annotate, configure, erase, flush, monitor, shutdown
from agenteval_otel.config import default_pipeline
from agenteval_otel.engine.capabilities.off_peak.off_peak import OffPeak
from agenteval_otel.engine.capabilities.off_peak.window import OffPeakSettings
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.testing import RecordedTelemetry
from tests.testing.doubles import Keeping

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 7, 1, 12, tzinfo=BERLIN).timestamp()
HOUR = 3_600.0
LATE, ENDED_AT = "agenteval.evaluation.late", "agenteval.response.ended_at"
CONTAINS = {"type": "Contains", "substrings": ["days"], "schedule": "off_peak"}


class Clock:
    def __init__(self, now_s: float = NOON) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def set_up(
    telemetry: RecordedTelemetry, folder: Path, clock: Clock, *evaluators: Any, **fields: Any
) -> OffPeak:
    """A pipeline with a window from 22:00 to 06:00 in Berlin, which looks when a test says so."""
    window = {
        "from": "22:00",
        "to": "06:00",
        "timezone": "Europe/Berlin",
        "path": folder / "off-peak.db",
    }
    window |= fields.pop("off_peak", {})
    fields = {"storage": [telemetry.storage()], "sample_rate": 1.0, **fields}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(OffPeak, "start", bool)
        configure(
            off_peak=window, evaluators=["ResponseHealth", *(evaluators or (CONTAINS,))], **fields
        )
    off_peak = default_pipeline().capabilities.of(OffPeak)
    assert off_peak is not None
    off_peak.clock = clock
    off_peak.start = bool  # type: ignore[method-assign]
    return off_peak


class Night:
    """A process whose answers wait for the night, from noon on; what is in its file and telemetry."""

    def __init__(self, telemetry: RecordedTelemetry, folder: Path) -> None:
        self.telemetry = telemetry
        self.folder = folder
        self.clock = Clock()
        self.off_peak: Any = None

    def set_up(self, *evaluators: Any, **fields: Any) -> None:
        """Begin, or go on with other settings as after a restart."""
        self.off_peak = set_up(self.telemetry, self.folder, self.clock, *evaluators, **fields)

    def ask(self, *questions: str) -> None:
        """Answer each question, and evaluate what does not wait."""
        for question in questions:
            answer(question)
        assert flush(30)

    def look(self, after_s: float = 0.0) -> None:
        """Look once that time has passed, and evaluate what there is."""
        self.clock.now_s += after_s
        self.off_peak.look()
        assert flush(30)

    def names(self) -> list[Any]:
        """The criteria of the emitted results."""
        events = self.telemetry.events()
        return [event.attributes["gen_ai.evaluation.name"] for event in events]

    def database(self) -> closing[sqlite3.Connection]:
        return closing(sqlite3.connect(self.folder / "off-peak.db", isolation_level=None))

    def waiting(self) -> int:
        with self.database() as connection:
            return int(connection.execute("SELECT count(*) FROM waiting").fetchone()[0])

    def lost(self) -> dict[str, int]:
        """What was counted as lost, by reason."""
        failures = default_pipeline().accounting.failures
        return {
            part.removeprefix("off_peak:"): count
            for part, count in failures.items()
            if part.startswith("off_peak")
        }


@monitor(agent="support")
def answer(question: str) -> str:
    annotate(conversation_id="c-1", user_id="ann")
    return "Within ten days, ann@mail.example."


@pytest.fixture
def night(telemetry: RecordedTelemetry, tmp_path: Path) -> Night:
    return Night(telemetry, tmp_path)


def test_a_window_passes(night: Night) -> None:
    """At noon one result, at 22:00 the other, below the same span; the answer counts once, and the
    row is gone.
    """
    night.set_up()
    night.ask("When?")
    assert (night.names(), night.waiting()) == (["response_health"], 1)
    assert night.off_peak.look() == 0
    night.clock.now_s += 10 * HOUR - 1  # 21:59:59
    assert night.off_peak.look() == 0
    night.look(after_s=1.0)
    assert (night.names(), night.waiting()) == (["response_health", "contains"], 0)
    telemetry = night.telemetry
    first, late = telemetry.events()
    assert late.trace_id == first.trace_id != 0
    runs = telemetry.spans("evaluation support")
    assert {span.parent.span_id for span in runs} == {
        telemetry.spans("invoke_agent support")[0].context.span_id
    }
    assert len(runs) == 2
    for early, later in ((first, late), runs):
        assert early.attributes.get(LATE) is None
        assert later.attributes[LATE] == "off_peak"
        assert early.attributes[ENDED_AT] == later.attributes[ENDED_AT]
    assert telemetry.points("agenteval.evaluation.lag")[0].count == 1, "waiting is no lag"
    assert default_pipeline().accounting.outcomes()["evaluated"] == 1
    assert default_pipeline().accounting.results["scored"] == 2


def test_it_waits_redacted_and_only_that(night: Night) -> None:
    """Readable by its owner alone; without what redaction takes out; nothing is left once it has
    been evaluated.
    """
    night.set_up()
    night.ask("When?")
    assert (night.folder / "off-peak.db").stat().st_mode & 0o777 == 0o600

    def on_disk() -> bytes:
        return b"".join(part.read_bytes() for part in night.folder.glob("off-peak.db*"))

    assert (b"Within ten days" in on_disk(), b"ann@mail.example" in on_disk()) == (True, False)
    night.look(after_s=10 * HOUR)
    assert shutdown(30)
    assert b"Within ten days" not in on_disk()


def test_late_results_are_sampled_as_the_answer_was(night: Night) -> None:
    """With the probability and the reason of its sampling, and an evaluator's own rate cut from the
    same randomness. (Of 60 answers 30 are expected, and of these half thinned.)
    """
    kept = Keeping()
    thinned = {**CONTAINS, "sample_rate": 0.25, "criterion_name": "thinned"}
    night.set_up(CONTAINS, thinned, storage=[kept], sample_rate=0.5)
    night.ask(*["When?"] * 60)
    early = len(kept.saved)
    night.clock.now_s += 10 * HOUR
    while night.waiting():
        night.look()
    late = kept.saved[early:]
    assert 10 < early < 50
    assert len(late) == early
    assert {(value.sampling_probability, value.sampling_reason) for value in late} == {
        (0.5, "ratio")
    }
    of_thinned = [result for result in kept.results if result.criterion_name == "thinned"]
    assert {result.probability for result in of_thinned} == {0.25}
    assert 0 < len(of_thinned) < early


CHILD = """
    import os, sys, time
    from datetime import datetime
    from zoneinfo import ZoneInfo
    from agenteval_otel import configure, flush, monitor
    from agenteval_otel.config import default_pipeline
    from agenteval_otel.storage import JsonFileStorageProvider
    folder, hour, asks = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    configure(
        storage=[JsonFileStorageProvider(path=f"{folder}/results.jsonl")], sample_rate=1.0,
        off_peak={"from": "22:00", "to": "06:00", "path": f"{folder}/off-peak.db"},
        evaluators=["ResponseHealth", {"type": "Contains", "substrings": ["days"], "schedule": "off_peak"}],
        telemetry={"content": "span_and_event"},
    )
    from agenteval_otel.engine.capabilities.off_peak.off_peak import OffPeak

    off_peak = default_pipeline().capabilities.of(OffPeak)
    off_peak.clock = lambda: datetime(2026, 7, 1, hour % 24, tzinfo=ZoneInfo("UTC")).timestamp() + hour // 24 * 86_400

    @monitor(agent="support")
    def answer(question):
        return "Within ten days."

    if asks == "asks":
        for number in range(5):
            answer(f"When {number}?")
        flush(30)
        print("kept", flush=True)
        time.sleep(60)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        off_peak.look()
        flush(10)
        import sqlite3
        if not sqlite3.connect(f"{folder}/off-peak.db").execute("SELECT count(*) FROM waiting").fetchone()[0]:
            break
    print("done", default_pipeline().accounting.outcomes()["evaluated"], flush=True)
"""


def child(folder: Path, hour: int, asks: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(CHILD), str(folder), str(hour), asks]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONWARNINGS": "ignore"}
    )


@pytest.mark.slow
def test_a_killed_process_loses_nothing(night: Night) -> None:
    """Answers of noon; SIGKILL; the next process evaluates them at night, each once, without a call
    of its own.
    """
    first = child(night.folder, 12, "asks")
    assert first.stdout is not None
    assert first.stdout.readline() == "kept\n"
    first.kill()
    first.communicate()
    assert night.waiting() == 5
    second = child(night.folder, 23, "waits")
    assert second.communicate(timeout=90)[0] == "done 0\n"
    lines = (night.folder / "results.jsonl").read_text().splitlines()
    late = [line for line in lines if '"criterionName":"contains"' in line]
    assert (len(lines), len(late)) == (10, 5)
    assert sorted({line.partition("When ")[2][0] for line in late}) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("moment", "zone", "expected"),
    [
        ("2026-07-01T21:59:59", "Europe/Berlin", False),
        ("2026-07-01T22:00:00", "Europe/Berlin", True),
        ("2026-07-01T00:00:00", "Europe/Berlin", True),
        ("2026-07-01T05:59:59", "Europe/Berlin", True),
        ("2026-07-01T06:00:00", "Europe/Berlin", False),
        ("2026-07-01T12:00:00", "Asia/Kolkata", False),
    ],
)
def test_a_window_crosses_midnight(moment: str, zone: str, expected: bool) -> None:
    """From the first moment to before the last one, in the local time of its zone."""
    now_s = datetime.fromisoformat(moment).replace(tzinfo=ZoneInfo(zone)).timestamp()
    assert OffPeakSettings(begins="22:00", ends="06:00", timezone=zone).is_open(now_s) is expected


@pytest.mark.parametrize(
    ("begins", "ends", "day", "hours"),
    [
        ("22:00", "06:00", "2026-03-28", 7.0),
        ("22:00", "06:00", "2026-10-24", 9.0),
        ("22:00", "06:00", "2026-07-01", 8.0),
        ("02:30", "04:00", "2026-03-28", 1.0),
        ("02:00", "03:00", "2026-10-24", 2.0),
        ("01:00", "02:30", "2026-03-28", 1.0),
    ],
)
def test_clocks_change_in_the_window(begins: str, ends: str, day: str, hours: float) -> None:
    """A night is an hour shorter or longer; a window in the hour that is left out opens behind it."""
    window = OffPeakSettings(begins=begins, ends=ends, timezone="Europe/Berlin")
    noon = datetime.fromisoformat(f"{day}T12:00").replace(tzinfo=BERLIN).timestamp()
    quarters = [noon + 900 * number for number in range(96)]
    assert sum(map(window.is_open, quarters)) / 4 == hours


def test_what_is_lost_is_counted(night: Night) -> None:
    """Too old, no room, a row that cannot be read, a process that died of it three times; one of
    another agent goes on waiting.
    """
    night.set_up(off_peak={"max_bytes": 65_536, "max_age_s": 86_400.0})
    night.ask("When?", "x" * 70_000)
    assert (night.waiting(), night.lost()) == (1, {"no_room": 1})
    night.look(after_s=25 * HOUR)
    assert (night.waiting(), night.lost()) == (0, {"no_room": 1, "expired": 1})
    with night.database() as connection:
        for agent, entry, attempts in (
            ("support", "{", 0),
            ("support", '{"input": {}}', 0),
            ("support", "{}", 3),
            ("other", "{}", 0),
        ):
            connection.execute(
                "INSERT INTO waiting (kept, agent, size, entry, attempts) VALUES (?, ?, ?, ?, ?)",
                (night.clock.now_s, agent, len(entry), entry, attempts),
            )
    night.look(after_s=10 * HOUR)
    assert night.waiting() == 1
    assert night.lost() == {"no_room": 1, "expired": 1, "unreadable": 2, "failed": 1}
    with night.database() as connection:
        assert connection.execute("SELECT size FROM total").fetchone() == (2,)


def test_an_evaluator_that_has_changed(night: Night) -> None:
    """It evaluates what waits as it is now."""
    night.set_up()
    night.ask("When?")
    night.set_up({**CONTAINS, "substrings": ["weeks"]})
    night.look(after_s=10 * HOUR)
    labels = [
        event.attributes["gen_ai.evaluation.score.label"] for event in night.telemetry.events()
    ]
    assert labels == ["pass", "fail"]


def test_a_person_is_erased_from_what_waits(night: Night) -> None:
    """By conversation, and by user; the file has no byte of it."""
    night.set_up()
    night.ask("canary-7f3a")
    removed = {place.place: place.removed for place in erase(user="ann")}
    assert removed["this process: off-peak answers"] == 1
    assert night.waiting() == 0
    assert not [file for file in night.folder.iterdir() if b"canary-7f3a" in file.read_bytes()]
    assert night.off_peak.look() == 0


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ({"from": "25:00"}, "off_peak.from: expected a local time"),
        ({"from": "06:00"}, "never closes"),
        ({"timezone": "Mars/Base"}, "no such time zone"),
        ({"fro": "22:00"}, "unknown field"),
        ({"batch": True}, "no judge whose provider has a batch API"),
        (None, "nothing says when that is"),
    ],
)
def test_wrong_settings_are_named(
    tmp_path: Path, window: dict[str, Any] | None, message: str
) -> None:
    """At start, with the field."""
    fields = {} if window is None else {"off_peak": {"path": tmp_path / "off-peak.db", **window}}
    with pytest.raises(ConfigurationError, match=message):
        configure(evaluators=[CONTAINS], **fields)


def test_an_escalated_evaluator_cannot_wait(tmp_path: Path) -> None:
    """Its turn is decided when the answer comes."""
    with pytest.raises(ConfigurationError, match="is escalated"):
        configure(
            evaluators=["ResponseHealth", CONTAINS],
            escalation={"criteria": ["contains"], "baseline_rate": 0.1},
            off_peak={"path": tmp_path / "off-peak.db"},
        )


def test_a_conversation_waits_with_the_spans_of_its_turns(night: Night) -> None:
    """Its late result stands in the last turn's trace, and links to the one before."""
    night.set_up({"type": "Repetition", "schedule": "off_peak"}, conversations={"idle_s": 0.05})
    night.ask("One?", "Two?")
    while not (night.folder / "off-peak.db").exists() or night.waiting() < 1:
        flush(1)
    night.clock.now_s += 10 * HOUR
    while night.waiting():
        night.look()
    late = [span for span in night.telemetry.spans("evaluation support") if span.links]
    assert [len(span.links) for span in late] == [1]
    assert "repetition" in night.names()


def test_without_room_a_look_ends(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the queue refuses waits for the next look, and is evaluated then."""
    night.set_up()
    night.ask("When?")
    night.clock.now_s += 10 * HOUR
    with monkeypatch.context() as patched:
        patched.setattr(MEMORY.captured_calls, "max_bytes", 0)
        assert night.off_peak.look() == 0
    assert night.waiting() == 1
    assert default_pipeline().accounting.outcomes()["dropped_queue_full"] == 0
    assert night.off_peak.look() == 1
    assert flush(30)
    assert (night.names()[-1], night.waiting()) == ("contains", 0)


def test_an_answer_that_ends_after_a_reload_starts_nothing_of_the_old_pipeline(
    night: Night,
) -> None:
    """It is written down, and waits for the next pipeline; the thread of the closed one stays away."""
    night.set_up()
    del night.off_peak.start
    assert night.off_peak.close(5.0)
    night.ask("When?")
    assert night.off_peak.flush(5.0)
    assert night.waiting() == 1
    assert "agenteval-off-peak" not in {thread.name for thread in threading.enumerate()}
