"""Ground truth that comes after its answer: the evaluators that lacked it run, once, in the trace
of the answer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import (
    accounting,
    annotate,
    configure,
    evaluation_reference,
    flush,
    monitor,
    record_ground_truth,
    reload,
    shutdown,
)
from agenteval_otel.config.process import default_pipeline
from agenteval_otel.engine.capabilities.late_truth import PendingAnswers
from agenteval_otel.errors import ConfigurationError, EvaluationSkipped
from agenteval_otel.evaluators import ExactMatch, LexicalSimilarity, ResponseHealth, TrajectoryMatch
from agenteval_otel.instrumentation.feedback import recorder
from agenteval_otel.instrumentation.feedback.recorder import RECORDER
from agenteval_otel.models import EvaluationInput
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.testing import RecordedTelemetry
from tests.testing.doubles import Keeping

EVALUATORS = [ResponseHealth(), ExactMatch(objective=0.9)]


class Process:
    """This process, which answers and keeps what it evaluated."""

    def __init__(self) -> None:
        self.telemetry, self.kept = RecordedTelemetry(), Keeping()
        RECORDER.reset()
        log.forget()

    def configure(self, **settings: Any) -> None:
        storage = [self.kept, self.telemetry.storage()]
        fields = {
            "evaluators": EVALUATORS,
            "sample_rate": 1.0,
            "ground_truth_window_s": 600.0,
            "storage": storage,
        }
        configure(**fields | settings)

    def results(self) -> list[tuple[str, str, Any]]:
        """What was evaluated since, answer by answer."""
        assert flush(20.0)
        saved, self.kept.saved[:] = list(self.kept.saved), []
        return [
            (part.criterion_name, part.status, part.score)
            for each in saved
            for part in each.results
        ]


@pytest.fixture
def process() -> Iterator[Process]:
    made = Process()
    made.configure()
    yield made
    made.telemetry.shutdown()


@monitor(agent="support")
def answer(question: str, **facts: Any) -> tuple[str, str]:
    annotate(response="On Monday.", **facts)
    return "On Monday.", evaluation_reference()


WAITING = [("response_health", "scored", True), ("exact_match", "skipped", None)]


def waiting() -> int:
    pending = default_pipeline().capabilities.of(PendingAnswers)
    assert pending is not None
    return len(pending)


def failures() -> dict[str, int]:
    counted = default_pipeline().accounting.failures
    return {
        part: count
        for part, count in counted.items()
        if part.startswith(("ground_truth", "feedback"))
    }


def test_truth_that_comes_late_has_the_waiting_evaluators_run(process: Process) -> None:
    """Only those that lacked it, in the answer's trace, with the answer's probability; the answer
    is counted once.
    """
    process.configure(sample_rate=0.5)
    while accounting()["evaluated"] == 0:
        with process.telemetry.tracer().start_as_current_span("request") as span:
            _, reference = answer("When?")
        flush()
    [first] = process.kept.saved
    process.results()
    before = accounting()
    assert record_ground_truth("On Monday.", reference)
    assert flush()
    [late] = process.kept.saved
    [result] = late.results
    assert (result.criterion_name, result.score, result.passed, result.probability) == (
        "exact_match",
        1.0,
        True,
        0.5,
    )
    assert (late.span, late.has_ground_truth, late.overall_score) == (first.span, True, None)
    assert (late.sampling_probability, late.sampling_reason) == (0.5, first.sampling_reason)
    assert (first.late, late.late) == (None, "ground_truth")
    assert late.response_ended_ns == first.response_ended_ns < first.ended_ns < late.ended_ns
    assert accounting() == before
    runs = [
        run
        for run in process.telemetry.spans("evaluation")
        if run.attributes["gen_ai.evaluation.has_ground_truth"]
    ]
    assert [run.context.trace_id for run in runs] == [span.get_span_context().trace_id]
    assert MEMORY.pending_answers.used_bytes == 0
    assert failures() == {}


IDS = {"response_id": "r-1", "conversation_id": "c-1"}


@pytest.mark.parametrize("by", ["reference", "trace_id", "span_id", *IDS])
def test_an_answer_is_known_by_the_ids_of_feedback(process: Process, by: str) -> None:
    """Reference, trace, trace and span, response, conversation: each leads to it."""
    with process.telemetry.tracer().start_as_current_span("request") as span:
        _, reference = answer("When?", **IDS)
    assert process.results() == WAITING
    context = span.get_span_context()
    trace = {"trace_id": f"{context.trace_id:032x}"}
    both = trace | {"span_id": f"{context.span_id:016x}"}
    ids: dict[str, Any] = {
        "reference": {"reference": reference},
        "trace_id": trace,
        "span_id": both,
        **{name: {name: value} for name, value in IDS.items()},
    }[by]
    assert record_ground_truth("On Tuesday.", **ids)
    assert process.results() == [("exact_match", "scored", 0.0)]


def test_truth_may_come_before_its_answer_is_evaluated(process: Process) -> None:
    """It waits for the answer; one that never comes is counted after its minute."""
    assert record_ground_truth("On Monday.", response_id="r-1")
    assert record_ground_truth("Never.", response_id="forged")
    assert process.results() == []
    answer("When?", response_id="r-1")
    found = process.results()
    # The recorder's own thread may have joined them before.
    assert RECORDER.drain(5.0)
    found += process.results()
    assert found == [*WAITING, ("exact_match", "scored", 1.0)]
    assert RECORDER.drain(5.0, last=True)
    assert failures() == {"ground_truth:unjoined": 1}
    assert process.results() == []
    answer("When?", response_id="forged")
    assert process.results() == WAITING
    assert record_ground_truth("Never.", response_id="forged")
    assert process.results() == [("exact_match", "scored", 0.0)]


def test_truth_is_used_once(process: Process) -> None:
    """The same again, by whatever id, and another one after it: counted and not evaluated."""
    _, reference = answer("When?", **IDS)
    assert process.results() == WAITING
    for truth, id in (
        ("On Monday.", reference),
        ("On Monday.", reference),
        ("On Tuesday.", reference),
    ):
        assert record_ground_truth(truth, id)
    assert record_ground_truth("On Monday.", response_id="r-1")
    assert process.results() == [("exact_match", "scored", 1.0)]
    assert failures() == {"ground_truth:repeated": 2, "ground_truth:contradicted": 1}


def test_truth_of_another_question_is_not_used(process: Process) -> None:
    """Where it says which question it answers, that has to be the answer's; case and whitespace do
    not matter.
    """
    _, reference = answer("When is it due?")
    assert process.results() == WAITING
    assert record_ground_truth("On Monday.", reference, prompt="When is it over?")
    assert record_ground_truth("On Monday.", reference, prompt=" when IS it\ndue?")
    assert process.results() == [("exact_match", "scored", 1.0)]
    assert failures() == {"ground_truth:other_question": 1}


@pytest.mark.parametrize(
    "wrong",
    [" ", None, "x" * 1_000_000, object(), {"a": object()}],
    ids=["blank", "none", "long", "object", "inner"],
)
def test_wrong_truth_is_refused(process: Process, wrong: Any) -> None:
    """Blank, 1 MB, no JSON: it is refused, and the answer goes on waiting."""
    _, reference = answer("When?")
    assert process.results() == WAITING
    assert not record_ground_truth(wrong, reference)
    assert not record_ground_truth("On Monday.")
    assert failures() == {"feedback:wrong": 2}
    assert record_ground_truth("On Monday.", reference)
    assert process.results() == [("exact_match", "scored", 1.0)]


def test_an_answer_that_lacks_nothing_does_not_wait(process: Process) -> None:
    """It had its ground truth, or no evaluator compares with one."""
    _, reference = answer("When?", ground_truth="On Monday.")
    assert process.results()[1] == ("exact_match", "scored", 1.0)
    process.configure(evaluators=[ResponseHealth()])
    _, other = answer("When?")
    assert flush()
    assert waiting() == 0
    for each in (reference, other):
        assert record_ground_truth("On Monday.", each)
    assert flush()
    assert failures() == {"ground_truth:not_awaited": 2}


def test_the_window_is_the_operators_to_open(process: Process) -> None:
    """Off by default, and by agent: without it nothing is kept, and truth is counted."""
    process.configure(ground_truth_window_s=0.0)
    _, reference = answer("When?")
    assert process.results() == WAITING
    assert record_ground_truth("On Monday.", reference)
    assert flush()
    assert failures() == {"ground_truth:not_awaited": 1}
    process.configure(ground_truth_window_s=600.0, agents={"support": {"ground_truth_window_s": 0}})
    answer("When?")
    assert flush()
    assert waiting() == 0
    process.configure(ground_truth_window_s=0.0, agents={"support": {"ground_truth_window_s": 60}})
    answer("When?")
    assert flush()
    assert waiting() == 1


def test_answers_end_with_their_window_and_with_the_process(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is counted: by time, by room, at the end."""
    process.configure(ground_truth_window_s=0.001)
    answer("When?")
    assert flush()
    answer("When?")
    assert flush()
    assert failures()["ground_truth:expired"] >= 1
    process.configure()
    monkeypatch.setattr(MEMORY.pending_answers, "max_bytes", 20_000)
    for number in range(50):
        answer(f"{number} When?")
    assert flush(20.0)
    left = waiting()
    assert 0 < left < 50
    assert MEMORY.pending_answers.used_bytes <= 20_000
    assert failures()["ground_truth:no_room"] == 50 - left
    assert shutdown(5.0)
    assert failures()["ground_truth:shutdown"] == left
    assert MEMORY.pending_answers.used_bytes == 0


def test_answers_wait_across_a_reload(process: Process, tmp_path: Path) -> None:
    """Their evaluators are those of the new settings; where these have none of them, it is counted."""
    file = tmp_path / "settings.yaml"

    def written(evaluators: str) -> None:
        file.write_text(
            f"sample_rate: 1.0\nground_truth_window_s: 600\nevaluators: [ResponseHealth{evaluators}]"
        )

    written(", ExactMatch")
    configure(file, storage=[process.kept])
    references = [answer("When?")[1] for _ in range(2)]
    assert flush()
    process.results()
    written(", {type: ExactMatch}, {type: Contains, criterion_name: c, substrings: [x]}")
    assert reload()
    assert record_ground_truth("On Monday.", references[0])
    assert process.results() == [("exact_match", "scored", 1.0)]
    written("")
    assert reload()
    assert record_ground_truth("On Monday.", references[1])
    assert process.results() == []
    assert failures() == {"ground_truth:not_awaited": 1}
    written(", ExactMatch")
    assert reload()
    answer("When?")
    assert flush()
    file.write_text("evaluators: [ResponseHealth]")
    assert reload()
    assert failures() == {"ground_truth:not_awaited": 1, "ground_truth:shutdown": 1}
    assert MEMORY.pending_answers.used_bytes == 0


def mine(evaluation_input: EvaluationInput) -> float:
    """An evaluator of the application's own."""
    if evaluation_input.ground_truth is None:
        raise EvaluationSkipped("no ground truth")
    return 1.0


def test_every_evaluator_that_says_so_waits(process: Process) -> None:
    """Built-in ones, functions, those that are tried, and those of a second stage."""
    evaluators = [
        ResponseHealth(),
        LexicalSimilarity(criterion_name="alike"),
        TrajectoryMatch(),
        mine,
        ExactMatch(criterion_name="tried", shadow=True),
        ExactMatch(criterion_name="second"),
    ]
    process.configure(
        evaluators=evaluators, escalation={"criteria": ["second"], "baseline_rate": 1.0}
    )
    _, reference = answer("When?")
    assert {name: status for name, status, _ in process.results()}["second"] == "skipped"
    assert record_ground_truth("On Monday.", reference)
    late = process.results()
    assert {(name, status) for name, status, _ in late} == {
        ("alike", "scored"),
        ("trajectory_match", "skipped"),
        ("mine", "scored"),
        ("tried.shadow", "scored"),
        ("second", "scored"),
    }


def test_many_threads_bring_truth(process: Process) -> None:
    """Answers, truths and the window's end meet: each answer that was kept ends in one way."""

    def work(number: int) -> None:
        for turn in range(50):
            _, reference = answer("When?", response_id=f"{number}-{turn}")
            if turn % 2:
                record_ground_truth("On Monday.", reference)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert flush(20.0)
    assert RECORDER.drain(5.0)
    late = [status for name, status, _ in process.results() if name == "exact_match"]
    assert (late.count("scored"), waiting()) == (100, 100)
    assert accounting()["evaluated"] == 200


def test_truth_without_room_is_counted(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """More unknown ones than are kept: the oldest are given up."""
    monkeypatch.setattr(recorder, "_MAX_UNJOINED", 5)
    for number in range(8):
        assert record_ground_truth("x", response_id=f"r-{number}")
    assert RECORDER.drain(5.0)
    assert failures() == {"ground_truth:unjoined": 3}


def test_where_the_sidecar_evaluates_truth_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """No answer waits here: the log says where to send it."""
    configure(evaluate_in="sidecar", endpoint="http://127.0.0.1:1", ground_truth_window_s=60.0)
    assert not record_ground_truth("x", response_id="r")
    assert "POST /v1/feedback" in caplog.text
    assert default_pipeline().capabilities.of(PendingAnswers) is None


def test_windows_are_checked() -> None:
    """Negative ones, and more than a month."""
    for wrong in (-1, 2_592_001):
        with pytest.raises(ConfigurationError, match="ground_truth_window_s"):
            configure(ground_truth_window_s=wrong)
