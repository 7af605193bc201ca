"""`erase` in a process: what waits in it for feedback or for its conversation, and what is stored."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import ClassVar

from agenteval_otel import (
    annotate,
    configure,
    erase,
    flush,
    monitor,
    record_feedback,
    record_ground_truth,
)
from agenteval_otel.engine.capability import Capability, Host
from agenteval_otel.engine.signals import Signal
from agenteval_otel.instrumentation.feedback.recorder import RECORDER
from agenteval_otel.storage import SqlStorageProvider
from agenteval_otel.storage.erasure import Erasure
from agenteval_otel.testing import RecordedTelemetry
from tests.storage.test_erasure import CANARY, stored


def test_a_process_erases_what_waits_in_it(tmp_path: Path, telemetry: RecordedTelemetry) -> None:
    """An unsampled answer, an open conversation, feedback without its answer, and what is stored,
    of one user.
    """
    gc.collect()  # the verdicts that judges of other tests still keep would count
    storage = SqlStorageProvider(path=tmp_path / "results.db")
    configure(
        storage=[storage, telemetry.storage()],
        sampler="conversation",
        feedback_window_s=600,
        ground_truth_window_s=600,
        evaluators=["ResponseHealth", "Repetition", "ExactMatch"],
        agents={"quiet": {"sample_rate": 0.0, "evaluators": ["ResponseHealth"]}},
        telemetry={"content": "span_and_event"},
    )
    RECORDER.reset()

    def reply(question: str, user: str, conversation: str) -> str:
        annotate(user_id=user, conversation_id=conversation)
        return f"{question} of {user}"

    loud, quiet = monitor(agent="loud")(reply), monitor(agent="quiet")(reply)
    for user in ("ann", "bob"):
        loud(CANARY if user == "ann" else "kept", user, f"c-{user}")
        quiet(CANARY, user, f"q-{user}")
        record_feedback(
            conversation_id=f"later-{user}", thumbs="down", comment=CANARY, user_id=user
        )
    assert flush(30)
    expected = {
        "this process: open conversations": 1,
        "this process: unsampled answers": 1,
        "this process: answers that wait for their truth": 1,
        "this process: spans, requests and feedback": 1,
        str(tmp_path / "results.db"): 1,
    }
    assert removed_of("ann") == expected
    assert CANARY not in str([value.model_dump_json() for value in stored(storage)])
    assert removed_of("ann") == {}
    assert removed_of("bob") == expected, "nothing of his was removed with hers"
    RECORDER.reset()


def removed_of(user: str) -> dict[str, int]:
    """How much an erasure removed, by the places that had anything."""
    return {place.place: place.removed for place in erase(user=user) if place.removed}


class Looking(Capability):
    """Holds the thread that looks for the answer of a ground truth."""

    reached: ClassVar = threading.Event()
    leave: ClassVar = threading.Event()

    def __init__(self, host: Host) -> None:
        super().__init__()

    def on_signal(self, signal: Signal) -> None:
        self.reached.set()
        assert self.leave.wait(20.0)


def test_what_is_being_looked_at_is_erased_too(telemetry: RecordedTelemetry) -> None:
    """An erasure waits until feedback is back among what waits for its answer."""
    RECORDER.reset()
    configure(evaluators=["ResponseHealth"], storage=[telemetry.storage()], capabilities=[Looking])
    assert record_ground_truth("Tuesday", conversation_id="later-ann")
    assert Looking.reached.wait(20.0)
    removed: list[int] = []

    def erase_it() -> None:
        for place in erase(conversation="later-ann"):
            if place.place == "this process: spans, requests and feedback":
                removed.append(place.removed)

    erasing = threading.Thread(target=erase_it)
    erasing.start()
    erasing.join(0.2)
    assert removed == [], "it would have missed what is looked at"
    Looking.leave.set()
    erasing.join(20.0)
    assert removed == [1]
    RECORDER.reset()


def test_a_capability_that_hangs_does_not_hold_an_erasure_up(telemetry: RecordedTelemetry) -> None:
    """What it looks at is erased as soon as it returns."""
    RECORDER.reset()
    Looking.reached.clear()
    Looking.leave.clear()
    configure(evaluators=["ResponseHealth"], storage=[telemetry.storage()], capabilities=[Looking])
    assert record_ground_truth("Tuesday", conversation_id="later-ann")
    assert record_ground_truth("Friday", conversation_id="later-bob")
    assert Looking.reached.wait(20.0)
    erasure = Erasure.of({"conversation": "later-ann"}, None)
    assert RECORDER.erase(erasure) == 0, "the capability still looks at it"
    Looking.leave.set()
    assert RECORDER.drain(20.0)
    assert repr(RECORDER) == "<Recorder unjoined=1>", "what is bob's"
    RECORDER.reset()
