"""What the sidecar takes in: every span that can arrive, and what becomes of it."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agenteval_otel import accounting, configure, flush, record_feedback, shutdown
from agenteval_otel.capture.otlp.body import BodyError, Full, Unavailable
from agenteval_otel.capture.spans import base
from agenteval_otel.capture.spans.span import spans_of_otlp
from agenteval_otel.config import current_pipeline, set_current_pipeline
from agenteval_otel.config.sidecar import SidecarSettings
from agenteval_otel.engine.agent_settings import AgentSettings
from agenteval_otel.engine.handler import HandlerSettings
from agenteval_otel.engine.pipeline import Pipeline, PoolDispatcher
from agenteval_otel.evaluators import Evaluator, Func, ResponseHealth
from agenteval_otel.instrumentation.feedback.recorder import RECORDER
from agenteval_otel.instrumentation.spans import SpanEvaluation
from agenteval_otel.models import EvaluationInput, EvaluationResult
from agenteval_otel.runtime.reentrancy import PROCESS
from agenteval_otel.sampling import RatioSampler
from agenteval_otel.semconv import EVALUATION_INCOMPLETE, METRIC_RESPONSES, METRIC_RESULTS
from agenteval_otel.sidecar.intake import Intake
from agenteval_otel.sidecar.journal import LOGS, TRACES, Journal
from agenteval_otel.sidecar.quarantine import Quarantine
from agenteval_otel.storage import JsonFileStorageProvider, OtlpStorageProvider
from agenteval_otel.storage.erasure import Erasure
from agenteval_otel.telemetry.emitter import Emission, Emitter
from agenteval_otel.testing import RecordedTelemetry
from tests.pipelines import pipeline_with
from tests.promises.receiver import Receiver
from tests.promises.served import add_span, messages, new_trace_id, trace_request
from tests.sidecar.applications import counted, until

MIB = 1024 * 1024


def process_of(telemetry: RecordedTelemetry, **settings: Any) -> Pipeline:
    """The process's pipeline, on a background thread as in the sidecar."""
    made = pipeline_with(
        **{
            "sampler": RatioSampler(),
            "evaluators": (ResponseHealth(),),
            "storage": (telemetry.storage(),),
            "dispatcher": PoolDispatcher(),
            **settings,
        }
    )
    set_current_pipeline(made)
    return made


@pytest.fixture
def process(telemetry: RecordedTelemetry) -> Pipeline:
    return process_of(telemetry)


def started(**settings: Any) -> Intake:
    made = Intake(SidecarSettings(**{"quiet_s": 0.05, "parent_wait_s": 0.1, **settings}))
    made.start()
    return made


@pytest.fixture
def intake(process: Pipeline) -> Iterator[Intake]:
    made = started()
    yield made
    made.close(5.0)


def take(intake: Intake, *requests: bytes | Any) -> None:
    for request in requests:
        if isinstance(request, bytes):
            request = ExportTraceServiceRequest.FromString(request)
        intake.take(TRACES, request)


def taken(intake: Intake, *requests: bytes | Any) -> dict[str, int]:
    """What the process has counted once these requests are evaluated."""
    take(intake, *requests)
    assert intake.close(60.0)
    pipeline = current_pipeline()
    assert pipeline is not None
    assert intake in pipeline.sources
    assert pipeline.flush(60.0)  # hundreds of answers, on a busy machine
    return counted(pipeline.accounting.outcomes())


def one_span(**more: Any) -> tuple[ExportTraceServiceRequest, Any]:
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "support",
        "gen_ai.input.messages": messages("user", "A question?"),
        "gen_ai.output.messages": messages("assistant", "An answer."),
    }
    return request, add_span(spans, new_trace_id(), 1, attributes=attributes, **more)


def model_call_below(agent: Any, number: int) -> Any:
    request = ExportTraceServiceRequest()
    add_span(
        request.resource_spans.add().scope_spans.add().spans,
        int.from_bytes(agent.trace_id),
        number,
        parent_id=1,
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.output.messages": messages("assistant", "Yes."),
        },
    )
    return request


def spoil_times(span: Any) -> None:
    span.start_time_unix_nano, span.end_time_unix_nano = 2 * 10**18, 10**18


def spoil_future(span: Any) -> None:
    span.start_time_unix_nano = span.end_time_unix_nano = 2**63 - 1


def no_times(span: Any) -> None:
    span.start_time_unix_nano = span.end_time_unix_nano = 0


def own_parent(span: Any) -> None:
    span.parent_span_id = span.span_id


def odd_texts(span: Any) -> None:
    span.name = "\0\x1b[31m" + "x" * 100_000
    span.trace_state = "not, a=trace=state,," + "x" * 10_000
    span.attributes.add(key="").value.string_value = "\0"
    span.attributes.add(key="x" * 100_000).value.double_value = float("nan")


def twice_the_same_key(span: Any) -> None:
    span.attributes.add(key="gen_ai.agent.name").value.int_value = 7


def long_ids(span: Any) -> None:
    span.trace_id, span.span_id, span.parent_span_id = b"\xff" * 16, b"\xff" * 8, b""


def many_events(span: Any) -> None:
    for _ in range(2_000):
        span.events.add(name="gen_ai.choice", time_unix_nano=1)


ODD: dict[str, Callable[[Any], None]] = {
    "ends before it starts": spoil_times,
    "in the year 2262": spoil_future,
    "no times": no_times,
    "its own parent": own_parent,
    "odd texts": odd_texts,
    "the same key twice": twice_the_same_key,
    "largest ids": long_ids,
    "thousands of events": many_events,
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_span_is_evaluated_as_any_other(
    name: str, intake: Intake, telemetry: RecordedTelemetry
) -> None:
    """Clocks that disagree, times in the future, circles, texts with NUL: one answer, scored, with
    no negative time.
    """
    request, span = one_span()
    ODD[name](span)
    assert taken(intake, request) == {"evaluated": 1}
    assert all(item.end_time >= item.start_time for item in telemetry.spans())


def test_spans_in_any_order_and_sent_again_are_one_answer(intake: Intake) -> None:
    """Children first, each span in a request of its own, and all of it three times."""
    request, agent = one_span()
    parts = [*(model_call_below(agent, number) for number in range(2, 6)), request]
    assert taken(intake, *parts, *parts, *reversed(parts)) == {"evaluated": 1}


def test_a_span_without_content_says_what_to_set(
    intake: Intake, caplog: pytest.LogCaptureFixture
) -> None:
    """It is no score and no silence: one outcome, and one line that names the switch."""
    request = ExportTraceServiceRequest()
    add_span(
        request.resource_spans.add().scope_spans.add().spans,
        new_trace_id(),
        1,
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "m",
            "gen_ai.provider.name": "openai",
        },
    )
    with caplog.at_level("WARNING"):
        assert taken(intake, request) == {"capture_failed": 1}
    assert "no content captured: " in caplog.text
    assert "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT" in caplog.text


def test_a_mapper_that_raises_costs_its_own_spans(
    intake: Intake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is counted, its message stays out of the log, and the other traces are evaluated."""
    request, span = one_span()
    span.name = "poison"
    mapper = base.mapper_of(next(iter(spans_of_otlp(request.resource_spans))))
    original = type(mapper).role

    def role(self: Any, read: Any) -> Any:
        if read.name == "poison":
            raise ValueError("quotes the conversation")
        return original(self, read)

    monkeypatch.setattr(type(mapper), "role", role)
    with caplog.at_level("WARNING"):
        assert taken(intake, request, trace_request(new_trace_id()))["evaluated"] == 1
    assert "quotes the conversation" not in caplog.text


def test_events_without_ids_are_ordinary_lines_of_a_log(intake: Intake) -> None:
    """Nothing is made of them, nothing is rejected; with ids of no span they wait and are let go."""
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    for trace_id, span_id in (
        (b"", b""),
        (b"\1" * 16, b""),
        (b"", b"\1" * 8),
        (b"\1" * 16, b"\1" * 8),
    ):
        records.add(trace_id=trace_id, span_id=span_id).body.string_value = "a line"
    assert intake.take(LOGS, request) == 0
    assert taken(intake) == {}


@pytest.mark.parametrize("kind", [TRACES, LOGS])
def test_a_request_without_records_is_counted(
    intake: Intake, process: Pipeline, kind: int, caplog: pytest.LogCaptureFixture
) -> None:
    """An empty one or one of another signal is taken, which ends its repetition, and logged once."""
    for _ in range(3):
        request = intake.messages[kind].request()
        request.MergeFromString(b"\x7a\x03abc")  # a field that OTLP does not have
        intake.note_empty(kind, request)
        assert intake.take(kind, request, b"\x7a\x03abc") == 0
    assert process.accounting.failures["requests:no_records"] == 3
    assert caplog.text.count("request_without_records") == 1
    assert taken(intake) == {}


def test_ids_of_zeros_are_rejected(intake: Intake) -> None:
    """They name no trace, and the reply counts them."""
    request = ExportTraceServiceRequest.FromString(trace_request(0, new_trace_id()))
    assert intake.take(TRACES, request) == 1
    assert taken(intake) == {"evaluated": 1}


def test_a_span_of_ten_megabytes_is_evaluated(intake: Intake) -> None:
    """Its text is cut where every text is cut."""
    assert taken(intake, trace_request(new_trace_id(), text="word " * 2_000_000)) == {
        "evaluated": 1
    }


def test_names_without_end_make_few_series_and_handlers(
    intake: Intake, process: Pipeline, telemetry: RecordedTelemetry
) -> None:
    """Hundreds of services and agents: bounded handlers, at most 64 agents and services as
    attributes.
    """
    requests = [trace_request(new_trace_id(), agent=f"agent-{number}") for number in range(400)]
    for number, data in enumerate(requests):
        request = ExportTraceServiceRequest.FromString(data)
        attributes = request.resource_spans[0].resource.attributes
        attributes.add(key="service.name").value.string_value = f"service-{number}"
        take(intake, request)
    assert taken(intake) == {"evaluated": 400}
    gc.collect()
    kinds = [type(each) for each in gc.get_objects()]  # isinstance would ask lazy objects
    assert kinds.count(HandlerSettings) < 300
    points = [dict(point.attributes) for point in telemetry.points(METRIC_RESULTS.name)]
    for attribute in ("gen_ai.agent.name", "service.name"):
        assert 1 < len({point.get(attribute) for point in points}) <= 65


def test_what_waits_takes_no_more_than_it_may(process: Pipeline) -> None:
    """Small attributes take far more memory than their bytes, and count as such; without room
    requests are refused.
    """
    small = started(quiet_s=60, max_waiting_bytes=MIB)
    request, span = one_span()
    for number in range(900):
        span.attributes.add(key=f"{number}").value.int_value = number
    count = 0

    def until_full() -> None:
        nonlocal count
        while True:
            span.trace_id = new_trace_id().to_bytes(16)
            small.take(TRACES, request)
            count += 1

    with pytest.raises(Full):
        until_full()
    assert 5 <= count <= 11
    assert small.state()["bytes"] <= MIB
    assert not small.has_room()
    with pytest.raises(BodyError, match="max_waiting_bytes"):
        take(small, trace_request(1, text="x" * 2 * MIB))
    assert small.close(10.0)
    assert small.state()["bytes"] == 0
    assert process.flush(5.0)
    assert process.accounting.outcomes()["evaluated"] == count


def test_an_answer_says_that_more_of_its_trace_was_to_come(
    telemetry: RecordedTelemetry, tmp_path: Path
) -> None:
    """A step whose agent has not come does, on the event, on the run span and in what is stored. A
    whole answer says nothing.
    """
    stored = JsonFileStorageProvider(path=str(tmp_path / "results.jsonl"))
    pipeline = process_of(telemetry, storage=(telemetry.storage(), stored))
    whole, agent = one_span()
    _, elsewhere = one_span()
    requests = (whole, model_call_below(agent, 2), model_call_below(elsewhere, 2))
    assert taken(started(), *requests) == {"evaluated": 2}
    marks = [
        [record.attributes.get(EVALUATION_INCOMPLETE) for record in records]
        for records in (telemetry.events(), telemetry.spans("evaluation"))
    ]
    assert pipeline.shutdown(60.0)
    lines = (tmp_path / "results.jsonl").read_text().splitlines()
    marks.append([json.loads(line).get("incomplete") for line in lines])
    expected = {None, "parent_missing"}
    assert [set(each) for each in marks] == [expected, expected, expected]
    assert [len(each) for each in marks] == [2, 2, 2]


def padded(span: Any, chars: int) -> None:
    """Make a span this much larger."""
    span.attributes.add(key="made up").value.string_value = "y" * chars


@pytest.mark.parametrize("fits", [True, False])
def test_a_refused_part_of_a_trace_is_waited_for(process: Pipeline, fits: bool) -> None:
    """The agent's span is here, and its model call, without which the answer is another one, finds
    no room. Sent again it is a part of the answer; if it never fits, nothing is evaluated.
    """
    small = started(quiet_s=60, parent_wait_s=60, max_waiting_bytes=MIB)
    request, agent = one_span()
    filling, other = one_span()
    other.attributes.add(key="gen_ai.conversation.id").value.string_value = "another"
    padded(other, MIB // 2)
    take(small, request, filling)
    part = model_call_below(agent, 2)
    (span,) = part.resource_spans[0].scope_spans[0].spans
    padded(span, MIB // 2 if fits else 2 * MIB)
    with pytest.raises(Full if fits else BodyError):
        take(small, part)
    assert small.erase(Erasure(conversations=["another"])) == 1, "there is room again"
    if fits:
        take(small, part)
    assert taken(small) == ({"evaluated": 1} if fits else {})
    assert "spans:late" not in process.accounting.failures
    assert process.accounting.failures.get("spans:dropped", 0) == (0 if fits else 1)


def test_a_part_that_the_journal_refuses_is_waited_for(process: Pipeline, tmp_path: Path) -> None:
    """A disk that fails keeps the model call away: the agent's span alone is not scored as whole."""
    journal = tmp_path / "journal"
    durable = started(quiet_s=60, parent_wait_s=120, durable=str(journal))
    durable.read_left(threading.Event())
    request, agent = one_span()
    part = model_call_below(agent, 2)
    durable.take(TRACES, request, request.SerializeToString())
    shutil.rmtree(journal)
    with pytest.raises(Unavailable):
        durable.take(TRACES, part, part.SerializeToString())
    assert durable.drain(60.0)
    assert process.flush(60.0)
    assert counted(process.accounting.outcomes()) == {}
    journal.mkdir(mode=0o700)
    durable.take(TRACES, part, part.SerializeToString())
    assert taken(durable) == {"evaluated": 1}


@pytest.mark.parametrize("widest", ["x", "é", "漢", "\U0001f600"])
def test_what_waits_counts_as_python_keeps_it(process: Pipeline, widest: str) -> None:
    """A text with one emoji takes four times its bytes, so a quarter as many are taken."""
    small = Intake(SidecarSettings(quiet_s=60, max_waiting_bytes=4 * MIB))
    text = "x" * 100_000 + widest
    keeps = sys.getsizeof(text)  # before it is encoded: a text keeps its UTF-8
    take(small, model_call("t", text))
    size_bytes = small.state()["bytes"]
    assert keeps < size_bytes < keeps + 4_000
    for _ in range(4 * MIB // size_bytes - 1):
        take(small, model_call("t", text))
    with pytest.raises(Full):
        take(small, model_call("t", text))


def model_call(key: str, text: str, request: Any = None) -> Any:
    """A model call whose agent is still at work."""
    request = request or ExportTraceServiceRequest()
    groups = request.resource_spans
    spans = (groups[0] if groups else groups.add()).scope_spans.add().spans
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": "[]", key: text}
    add_span(spans, new_trace_id(), 1, parent_id=2, attributes=attributes)
    return request


def test_a_large_resource_counts_for_each_span_that_keeps_it(process: Pipeline) -> None:
    """One that is as large as usual is divided among its spans; of a larger one each span that
    waits keeps all alive.
    """
    sizes = []
    for length in (1, 2_000, 500_000):
        waits = Intake(SidecarSettings(quiet_s=60))
        request = model_call("t", "x")
        for _ in range(9):
            model_call("t", "x", request)
        attributes = request.resource_spans[0].resource.attributes
        attributes.add(key="made up").value.string_value = "x" * length
        waits.take(TRACES, request)
        sizes.append(waits.state()["bytes"])
    smallest, usual, large = sizes
    assert smallest + 1_900 < usual < smallest + 2_100
    assert large > smallest + 10 * 490_000


def test_the_name_of_a_scope_is_one_text_for_all_its_spans() -> None:
    """Each access to a message's text makes another one, so a long name would be there a thousand
    times.
    """
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    scope.scope.name = "x" * 10_000
    for number in range(1, 11):
        add_span(scope.spans, number, number)
    assert len({id(span.scope) for span in spans_of_otlp(request.resource_spans)}) == 1


def test_what_is_being_read_is_still_counted(
    process: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traces leave the limit when they have been read, not when they are taken from the assembler;
    large ones are read one by one.
    """
    intake = Intake(SidecarSettings(quiet_s=0.05, parent_wait_s=0.1))
    evaluate = SpanEvaluation.evaluate
    sizes: list[tuple[int, int]] = []

    def noted(evaluation: SpanEvaluation, traces: Any, *more: Any) -> None:
        size_bytes = sum(trace.size_bytes for trace in traces)
        sizes.append((size_bytes, intake.state()["bytes"]))
        evaluate(evaluation, traces, *more)

    monkeypatch.setattr(SpanEvaluation, "evaluate", noted)
    take(intake, *(model_call("t", "x" * 5 * MIB) for _ in range(3)))
    intake.start()
    assert intake.close(30.0)
    assert [size_bytes > 5 * MIB for size_bytes, _ in sizes if size_bytes] == [True] * 3
    assert all(size_bytes <= counted_bytes for size_bytes, counted_bytes in sizes)
    assert intake.state()["bytes"] == 0


def test_the_queue_shows_what_waits_for_its_trace(
    process: Pipeline, telemetry: RecordedTelemetry
) -> None:
    """What a kill would lose is in `agenteval.queue.size` from the moment of the acknowledgement."""
    waits = started(quiet_s=60)
    for expected in (1, 7):  # the first answer begins our metrics
        take(waits, *(trace_request(new_trace_id()) for _ in range(expected)))
        if expected == 7:
            assert [point.value for point in telemetry.points("agenteval.queue.size")] == [7]
        assert waits.drain(10.0, last=True)
        assert process.flush(5.0)
    assert [point.value for point in telemetry.points("agenteval.queue.size")] == [0]
    assert waits.close(10.0)


def test_answers_wait_until_the_queue_has_room(
    telemetry: RecordedTelemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the queue is more than half full nothing is handed over, so that nothing is dropped."""
    entered, leave = threading.Event(), threading.Event()

    def held(evaluation_input: EvaluationInput) -> bool:
        entered.set()
        return leave.wait(20.0)

    had_room: list[bool] = []
    has_room = Pipeline.has_room

    def noted(pipeline: Pipeline) -> bool:
        had_room.append(has_room(pipeline))
        return had_room[-1]

    monkeypatch.setattr(Pipeline, "has_room", noted)
    queue = PoolDispatcher(max_bytes=64 * 1024, stall_s=60.0)
    evaluators = (Func.of(held, execution="inline"),)
    process = process_of(telemetry, evaluators=evaluators, dispatcher=queue)
    intake = started()
    take(intake, trace_request(new_trace_id(), text="word " * 8_000))
    assert entered.wait(20.0)
    take(intake, *(trace_request(new_trace_id()) for _ in range(3)))
    assert until(lambda: had_room.count(False) > 1)
    assert process.dispatcher.state()["size"] == 1
    leave.set()
    assert taken(intake) == {"evaluated": 4}


def test_answers_that_are_evaluated_together_are_sent_together(
    telemetry: RecordedTelemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has its event and its run span at the receiver, once and in its own trace."""
    monkeypatch.setattr(PROCESS, "rests", False)  # as in a sidecar's process
    sent: list[int] = []
    send = Emitter.send

    def noted(emitter: Emitter, emissions: Sequence[Emission], **options: Any) -> None:
        sent.append(len(emissions))
        send(emitter, emissions, **options)

    monkeypatch.setattr(Emitter, "send", noted)
    entered, leave = threading.Event(), threading.Event()

    def waits_for_others(evaluation_input: EvaluationInput) -> bool:
        if evaluation_input.response_text == "held":
            entered.set()
            leave.wait(20.0)
        return True

    trace_ids = [new_trace_id() for _ in range(12)]
    with Receiver() as receiver:
        process = process_of(
            telemetry,
            evaluators=(Func.of(waits_for_others, execution="inline"),),
            storage=(OtlpStorageProvider(endpoint=receiver.endpoint, protocol="http/protobuf"),),
            dispatcher=PoolDispatcher(stall_s=60.0),
        )
        intake = started()
        take(intake, trace_request(trace_ids[0]))  # the providers are made for it
        assert until(lambda: process.accounting.outcomes()["evaluated"] == 1)
        take(intake, trace_request(trace_ids[1], text="held"))
        assert entered.wait(20.0)
        take(intake, trace_request(*trace_ids[2:]))
        assert until(lambda: process.dispatcher.state()["waiting"] == 10)
        leave.set()
        assert taken(intake) == {"evaluated": 12}
        assert process.shutdown(20.0)
    assert sent == [1, 1, 10]
    expected = sorted(trace_id.to_bytes(16) for trace_id in trace_ids)
    assert sorted(event.trace_id for event in receiver.events()) == expected
    runs = [span for span in receiver.spans() if span.name == "evaluation support"]
    assert sorted(run.trace_id for run in runs) == expected


def durable(folder: Path, **settings: Any) -> Intake:
    return started(durable=str(folder), **settings)


def read_again(folder: Path, **settings: Any) -> Intake:
    """The intake of the next process, which has read all that the one before has left."""
    made = durable(folder, **settings)
    made.read_left(threading.Event())
    return made


def write_journal(folder: Path, *requests: bytes) -> None:
    """What a process acknowledged, and had not evaluated when it ended."""
    journal = Journal(folder, 64 * MIB)
    for request in requests:
        journal.write(TRACES, request)
    journal.close()


def segments(folder: Path) -> list[Path]:
    return list(folder.glob("*.requests"))


def test_what_an_earlier_process_evaluated_is_not_evaluated_again(
    tmp_path: Path, process: Pipeline
) -> None:
    """Nor is a span an answer of its own that came late to such a trace; what was not done is
    evaluated.
    """
    request, agent = one_span()
    journal = Journal(tmp_path, 64 * MIB)
    journal.write(TRACES, trace_request(new_trace_id()))
    journal.write(TRACES, request.SerializeToString())
    journal.finish({(int.from_bytes(agent.trace_id), 0): 2}, needed_from=1)
    journal.write(TRACES, model_call_below(agent, 2).SerializeToString())
    journal.close()
    intake = durable(tmp_path)
    with pytest.raises(Full):
        intake.take(TRACES, request)
    assert not intake.has_room()
    assert intake.read_left(threading.Event()) == 3
    assert intake.has_room()
    assert taken(intake) == {"evaluated": 1}
    assert segments(tmp_path) == []


def test_an_end_in_the_middle_of_reading_keeps_the_rest(tmp_path: Path, process: Pipeline) -> None:
    """What was not read stays on the disk, whatever else is done."""
    large = [trace_request(new_trace_id(), text="x" * 600_000) for _ in range(3)]
    write_journal(tmp_path, *large)
    before = sum(file.stat().st_size for file in segments(tmp_path))
    intake = durable(tmp_path, quiet_s=60, max_waiting_bytes=MIB)
    assert intake.read_left(ENDED) == 1
    assert taken(intake) == {"evaluated": 1}
    assert sum(file.stat().st_size for file in segments(tmp_path)) >= before
    again = durable(tmp_path)
    assert again.read_left(threading.Event()) == 3
    assert again.close(10.0)


def test_a_journal_larger_than_memory_is_read_as_room_becomes_free(
    tmp_path: Path, process: Pipeline
) -> None:
    """In order and within the limit. What waits for a parent goes when nothing else can come in,
    and the rest is read. At the end the last ones are left to the next process.
    """
    text = "x" * 200_000 + "\U0001f600"
    requests = [model_call("t", text).SerializeToString() for _ in range(8)]
    write_journal(tmp_path, *requests)
    settings = SidecarSettings(
        quiet_s=0.05, parent_wait_s=3_600, max_waiting_bytes=2 * MIB, durable=str(tmp_path)
    )
    intake = Intake(settings)
    assert intake.read_left(ENDED) == 2  # without a thread nothing makes room
    assert 1.5 * MIB < intake.state()["bytes"] <= 2 * MIB
    intake.close(0.0)
    again = Intake(settings)
    again.start()
    assert again.read_left(threading.Event()) == 8
    assert taken(again)["capture_failed"] == 6  # model calls without content
    last = Intake(settings.model_copy(update={"parent_wait_s": 0.05}))
    last.start()
    assert last.read_left(threading.Event()) >= 2
    assert taken(last)["capture_failed"] == 8
    assert not (tmp_path / "reading").exists()


ENDED = threading.Event()
ENDED.set()


def test_what_the_limits_refuse_now_is_kept_in_a_file(
    tmp_path: Path, process: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    """A request that was acknowledged under other limits, or that cannot be decoded, is named and
    counted, and the others are read.
    """
    large = trace_request(new_trace_id(), text="x" * 2_000)
    wide = model_call("t", "x" * 700_000 + "\U0001f600").SerializeToString()
    write_journal(tmp_path, wide, b"\xff", trace_request(new_trace_id()))
    intake = durable(tmp_path, max_waiting_bytes=2 * MIB)
    assert intake.read_left(threading.Event()) == 3
    assert taken(intake) == {"evaluated": 1}
    assert in_quarantine(tmp_path) == {wide, b"\xff"}
    assert process.accounting.failures["journal:quarantined"] == 2
    assert str(tmp_path / "quarantine") in caplog.text
    write_journal(tmp_path, large)
    small = Intake(SidecarSettings(max_request_bytes=1_024, durable=str(tmp_path)))
    assert small.read_left(threading.Event()) == 1
    assert small.close(0.0)
    assert in_quarantine(tmp_path) == {wide, b"\xff", large}


def in_quarantine(folder: Path) -> set[bytes]:
    return {file.read_bytes() for file in (folder / "quarantine").iterdir()}


def test_a_request_is_not_read_a_third_time_where_it_ended_two_starts(
    tmp_path: Path, process: Pipeline
) -> None:
    """An end while another one was read counts for that one alone."""
    write_journal(tmp_path, trace_request(new_trace_id()), trace_request(new_trace_id()))
    for note, left in (("1 1", 2), ("3 2", 2), ("garbage", 2), ("2 2", 1)):
        (tmp_path / "reading").write_text(note)
        intake = Intake(SidecarSettings(quiet_s=60, durable=str(tmp_path)))
        assert intake.read_left(threading.Event()) == 2
        assert intake.state()["size"] == left, note
        assert intake.close(0.0)  # it was not started: nothing is evaluated


def test_an_erasure_reaches_what_is_in_quarantine(tmp_path: Path) -> None:
    """A file that mentions the id is deleted as a whole: it is not decoded again."""
    quarantine = Quarantine(tmp_path)
    for data in (b"of c-1 and more", b"of another"):
        quarantine.keep(TRACES, data)
    assert quarantine.erase(Erasure(conversations=["c-1"])) == 1
    assert in_quarantine(tmp_path) == {b"of another"}


def test_a_trace_is_needed_until_its_answer_is_with_the_pipeline(
    tmp_path: Path, process: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint while it is taken out of the assembler and not yet submitted drops nothing of
    it.
    """
    begun, dropped, goes_on = threading.Event(), threading.Event(), threading.Event()
    evaluate, finish = SpanEvaluation.evaluate, Journal.finish

    def slowly(evaluation: SpanEvaluation, traces: Any, *more: Any) -> None:
        if traces:
            begun.set()
            goes_on.wait(30)
        evaluate(evaluation, traces, *more)

    def finished(journal: Journal, done: Any, needed_from: int = 0) -> bool:
        is_finished = finish(journal, done, needed_from)
        if begun.is_set() and needed_from:  # a checkpoint, which drops what is not needed
            dropped.set()
        return is_finished

    monkeypatch.setattr(SpanEvaluation, "evaluate", slowly)
    monkeypatch.setattr(Journal, "finish", finished)
    intake = read_again(tmp_path)
    take(intake, trace_request(new_trace_id()))
    assert begun.wait(30)
    assert dropped.wait(30)
    assert len(segments(tmp_path)) == 1
    goes_on.set()
    assert taken(intake) == {"evaluated": 1}
    assert segments(tmp_path) == []


def died(folder: Path, trace: int, *, times: int) -> None:
    """As many processes as that die while this trace is under evaluation."""
    for _ in range(times):
        pid = os.fork()
        if pid == 0:
            Journal(folder, 64 * MIB).begin([(trace, 0)])
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_what_processes_died_of_is_evaluated_after_all_else(
    tmp_path: Path, process: Pipeline, telemetry: RecordedTelemetry
) -> None:
    """Alone from the third time on, from the requests that hold it, and then it counts no more."""
    suspect, request = new_trace_id(), [new_trace_id() for _ in range(3)]
    write_journal(tmp_path, trace_request(suspect, *request))
    died(tmp_path, suspect, times=3)
    intake = read_again(tmp_path)
    assert taken(intake) == {"evaluated": 4}
    order = [event.trace_id for event in telemetry.events()]
    assert (len(order), order[-1]) == (4, suspect)
    assert segments(tmp_path) == []
    again = Journal(tmp_path, 64 * MIB)
    assert again.attempts((suspect, 0)) == 0
    again.close()


def test_what_five_processes_died_of_is_quarantined(tmp_path: Path, process: Pipeline) -> None:
    """Its spans are kept in a file that `serve --once` reads, it is counted, and the others of its
    request are evaluated.
    """
    suspect, other = new_trace_id(), new_trace_id()
    write_journal(tmp_path, trace_request(suspect, other))
    died(tmp_path, suspect, times=5)
    intake = read_again(tmp_path)
    assert taken(intake) == {"evaluated": 1}
    assert process.accounting.failures["journal:quarantined"] == 1
    (file,) = (tmp_path / "quarantine").iterdir()
    kept = ExportTraceServiceRequest.FromString(file.read_bytes())
    spans = [
        span for group in kept.resource_spans for part in group.scope_spans for span in part.spans
    ]
    assert [int.from_bytes(span.trace_id) for span in spans] == [suspect]
    assert segments(tmp_path) == []


class Held(Evaluator, type="held"):
    """Evaluates at once, but for answers that say so, which wait until a test lets them go."""

    execution: str | None = "async"

    async def evaluate(
        self, evaluation_input: EvaluationInput, criteria: Any
    ) -> list[EvaluationResult]:
        while "wait" in (evaluation_input.response_text or "") and not GOES_ON.is_set():  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.005)
        return []


GOES_ON = threading.Event()


def test_what_was_exported_is_noted_while_others_are_under_evaluation(
    tmp_path: Path, telemetry: RecordedTelemetry
) -> None:
    """A kill comes while one answer waits for its judge: that one alone is evaluated again."""
    GOES_ON.clear()
    process = process_of(telemetry, evaluators=(Held(),))
    intake = read_again(tmp_path)
    slow = new_trace_id()
    take(intake, trace_request(slow, text="wait"))
    take(intake, *(trace_request(new_trace_id(), text="now") for _ in range(5)))
    copy = tmp_path / "copy"

    def left_after_a_kill() -> set[int]:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(tmp_path, copy, ignore=shutil.ignore_patterns("copy"))
        journal = Journal(copy, 64 * MIB)
        try:
            assert journal.attempts((slow, 0)) == 1
            requests = [
                ExportTraceServiceRequest.FromString(entry.data) for entry in journal.left()
            ]
            spans = [request.resource_spans[0].scope_spans[0].spans[0] for request in requests]
            traces = {int.from_bytes(span.trace_id) for span in spans}
            return {trace for trace in traces if (trace, 0) not in journal.done}
        finally:
            journal.close()

    assert until(lambda: process.accounting.outcomes()["evaluated"] == 5)
    assert until(lambda: left_after_a_kill() == {slow})
    GOES_ON.set()
    assert taken(intake) == {"evaluated": 6}


def test_calls_are_counted_by_the_service_that_made_them(
    process: Pipeline, intake: Intake, telemetry: RecordedTelemetry
) -> None:
    """Agents of one name in two services have outcomes of their own in the metric, and are one in
    the accounting.
    """
    requests = []
    for service, environment in (("shop", "production"), ("bank", "staging"), ("bank", "staging")):
        request, _ = one_span()
        for key, value in (("service.name", service), ("deployment.environment.name", environment)):
            request.resource_spans[0].resource.attributes.add(key=key).value.string_value = value
        requests.append(request)
    assert taken(intake, *requests) == {"evaluated": 3}
    assert [outcomes["evaluated"] for outcomes in process.accounting.by_agent().values()] == [3]
    evaluated = {
        (
            point.attributes["service.name"],
            point.attributes["deployment.environment.name"],
        ): point.value
        for point in telemetry.points(METRIC_RESPONSES.name)
        if point.attributes["agenteval.outcome"] == "evaluated"
    }
    assert evaluated == {("shop", "production"): 1, ("bank", "staging"): 2}


def test_an_answer_that_was_not_sampled_is_evaluated_after_a_complaint(
    telemetry: RecordedTelemetry,
) -> None:
    """With a feedback window, an answer that spans showed waits for feedback by its trace, and is
    counted once.
    """
    RECORDER.reset()
    configure(storage=[telemetry.storage()], sample_rate=0.0, feedback_window_s=600)
    intake = started()
    first, span = one_span()
    second, _ = one_span()
    assert taken(intake, first, second) == {}
    ids = {"trace_id": span.trace_id.hex(), "span_id": span.span_id.hex()}
    assert record_feedback(thumbs="down", **ids)
    assert flush(10.0)
    assert counted(accounting()) == {"evaluated": 1}
    assert shutdown(10.0)
    assert counted(accounting()) == {"evaluated": 1, "not_sampled": 1}


def test_an_agent_has_its_settings_whatever_service_it_comes_from(
    intake: Intake, telemetry: RecordedTelemetry
) -> None:
    """From 230 services, after 230 agents that nobody named: every answer of the configured agent
    is evaluated, with its service, and no other one is.
    """
    clerk = AgentSettings(sampler=RatioSampler(ratio=1.0))
    made = process_of(telemetry, sampler=RatioSampler(ratio=0.0), agents={"clerk": clerk})
    made.sources.add(intake)
    requests = []
    for number in range(460):
        request, span = one_span()
        agent = "clerk" if number >= 230 else f"made-up-{number}"
        span.attributes[1].value.string_value = agent
        resource = request.resource_spans[0].resource
        resource.attributes.add(key="service.name").value.string_value = f"service-{number}"
        requests.append(request)
    assert taken(intake, *requests) == {"evaluated": 230, "not_sampled": 230}
    seen = {
        (event.attributes["gen_ai.agent.name"], event.attributes["service.name"])
        for event in telemetry.events()
    }
    assert seen == {("clerk", f"service-{number}") for number in range(230, 460)}
