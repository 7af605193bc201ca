"""``evaluate --telemetry`` and ``benchmark run --telemetry``: a test suite in the user's backend."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agenteval_otel import semconv
from agenteval_otel.cli.evaluate.emitted import name_of_suite
from tests.backends.faults import BlackHole
from tests.cli.conftest import CommandLine
from tests.promises.conftest import hole
from tests.promises.receiver import Receiver, Reply

__all__ = ["hole"]

SECRET = "sk-ant-api03-" + "a" * 40
ROWS = "".join(
    json.dumps({"prompt": prompt, "response": response}) + "\n"
    for prompt, response in (
        ("When?", "On Tuesday."),
        ("Where?", ""),
        ("Who?", f"Ask {SECRET}."),
    )
)
RAISES = """
from agenteval_otel.evaluators import CriterionEvaluator

class Raises(CriterionEvaluator, type="Raises"):
    criterion_name: str = "raises"

    def score(self, evaluation_input):
        raise OSError("no disk")
"""
WAITS = """
import asyncio
from agenteval_otel.evaluators import CriterionEvaluator

class Waits(CriterionEvaluator, type="Waits"):
    criterion_name: str = "waits"

    async def score(self, evaluation_input):
        async with asyncio.timeout(5):
            await asyncio.sleep(0.05)
        return True
"""
SETTINGS = "evaluators: [ResponseHealth]"


EVALUATE = "evaluate answers.jsonl --settings settings.yaml"


@pytest.fixture(autouse=True)
def _answers(cli: CommandLine) -> None:
    cli.file("answers.jsonl", ROWS)


@pytest.fixture
def otlp(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets the variables of an exporter to this endpoint."""

    def set_endpoint(endpoint: str) -> None:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        # The command sets it for its own process, which here is that of the tests.
        monkeypatch.setenv("OTEL_SERVICE_NAME", "tests")

    return set_endpoint


@pytest.fixture
def receiver(otlp: Callable[[str], None]) -> Iterator[Receiver]:
    with Receiver() as receiver:
        otlp(receiver.endpoint)
        yield receiver


def attributes_of(item: Any) -> dict[str, Any]:
    return {
        pair.key: getattr(pair.value, str(pair.value.WhichOneof("value")))
        for pair in item.attributes
    }


def test_a_run_is_a_suite_and_each_input_a_case(cli: CommandLine, receiver: Receiver) -> None:
    """One trace: the suite's span with its status, below it a run span for each input with the
    case's name and status, and events that say the same. No metric, no content, no secret.
    """
    cli.settings(SETTINGS)
    cli(f"{EVALUATE} --telemetry")
    [suite] = [span for span in receiver.spans() if "suite" in span.name]
    cases = [span for span in receiver.spans() if span.span_id != suite.span_id]

    assert suite.name == "test suite answers"
    assert attributes_of(suite) == {
        semconv.TEST_SUITE: "answers",
        semconv.TEST_SUITE_STATUS: "success",
    }
    assert {(case.trace_id, case.parent_span_id) for case in cases} == {
        (suite.trace_id, suite.span_id)
    }
    expected = [
        (f"answers.jsonl:{line}", status) for line, status in enumerate(("pass", "fail", "pass"), 1)
    ]
    for items in (cases, receiver.events()):
        stated = [attributes_of(item) for item in items]
        assert {item[semconv.TEST_SUITE] for item in stated} == {"answers"}
        assert [
            (item[semconv.TEST_CASE], item[semconv.TEST_CASE_STATUS]) for item in stated
        ] == expected
    everything = b"".join(body for bodies in receiver.bodies.values() for body in bodies)
    assert receiver.bodies["/v1/metrics"] == []
    assert b"Tuesday" not in everything
    assert SECRET.encode() not in everything


def test_a_missed_target_fails_the_suite(cli: CommandLine, receiver: Receiver) -> None:
    """The status is that of the exit code; --suite names the suite."""
    cli.settings(SETTINGS)
    cli(f"{EVALUATE} --telemetry --suite nightly --fail-under 0.99", code=1)
    [suite] = [span for span in receiver.spans() if span.name == "test suite nightly"]
    assert attributes_of(suite)[semconv.TEST_SUITE_STATUS] == "failure"


def test_an_interrupted_run_is_an_aborted_suite(cli: CommandLine, receiver: Receiver) -> None:
    """What was evaluated before is emitted, and the suite's span says that the rest is missing."""
    cli.file("stops.py", "def answer(prompt):\n    raise KeyboardInterrupt\n")
    cli.file("questions.csv", "prompt\nWhen?\n")
    cli.settings(SETTINGS)
    cli("evaluate questions.csv --settings settings.yaml --telemetry --run stops:answer", code=130)
    [suite] = receiver.spans()
    assert attributes_of(suite)[semconv.TEST_SUITE_STATUS] == "aborted"


def test_a_case_that_could_not_be_judged_has_no_status(
    cli: CommandLine, receiver: Receiver
) -> None:
    """A failed evaluator is no verdict: the case neither passes nor fails."""
    cli.file("answers.jsonl", '{"response": "Yes."}\n')
    cli.file("raises.py", RAISES)
    cli.settings("plugins: [raises]\nevaluators: [ResponseHealth, Raises]")
    cli(f"{EVALUATE} --telemetry")
    [case] = [span for span in receiver.spans() if span.name == "evaluation"]
    assert semconv.TEST_CASE_STATUS not in attributes_of(case)


def test_a_benchmark_is_a_suite_of_its_name(cli: CommandLine, receiver: Receiver) -> None:
    """`benchmark run --telemetry` names the suite as the benchmark."""
    cli.settings(f"{SETTINGS}\nbenchmarks: {{faq: {{dataset: [answers.jsonl]}}}}")
    cli("benchmark run faq --settings settings.yaml --version 1 --telemetry")
    assert "test suite faq" in {span.name for span in receiver.spans()}


def test_a_receiver_that_is_away_does_not_change_the_run(
    cli: CommandLine, receiver: Receiver
) -> None:
    """The exit code is that of the targets, and a line counts what was not delivered."""
    receiver.reply = Reply(400)
    cli.file("answers.jsonl", ROWS * 200)
    cli.settings(SETTINGS)
    cli(f"{EVALUATE} --telemetry")
    assert "not delivered as telemetry: the results of 600 inputs" in cli.err


@pytest.mark.slow  # it waits for the 10 s that a run gives its telemetry at the end
def test_a_receiver_that_never_answers_holds_up_no_evaluator(
    cli: CommandLine, hole: BlackHole, otlp: Callable[[str], None]
) -> None:
    """Evaluators with a time limit of their own score all inputs while the receiver is silent."""
    otlp(hole.endpoint)
    cli.file("waits.py", WAITS)
    cli.file("answers.jsonl", ROWS * 200)
    cli.settings("plugins: [waits]\nevaluators: [Waits]")
    [criterion] = json.loads(cli(f"{EVALUATE} --telemetry --concurrency 64 --report json"))[
        "criteria"
    ]
    assert (criterion["scored"], criterion["failed"]) == (600, 0)
    assert "not delivered as telemetry: the results of 600 inputs" in cli.err


def test_a_suite_of_many_files_has_a_short_name() -> None:
    """Three files are named, and the others counted."""
    assert name_of_suite(["a/one.jsonl", "two.csv"]) == "one, two"
    assert name_of_suite([f"{number}.csv" for number in range(400)]) == "0, 1, 2 and 397 more"


def test_without_an_endpoint_nothing_begins(cli: CommandLine) -> None:
    """--telemetry without a place to send to is wrong use, and says what to set."""
    cli.settings(SETTINGS)
    cli(f"{EVALUATE} --telemetry", code=2)
    os.environ.pop("OTEL_SERVICE_NAME", None)
    assert "--telemetry: no endpoint is known: set OTEL_EXPORTER_OTLP_ENDPOINT" in cli.err


def test_nothing_is_emitted_unasked(cli: CommandLine, receiver: Receiver) -> None:
    """An endpoint in the environment alone emits nothing."""
    cli.settings(SETTINGS)
    cli(EVALUATE)
    assert not any(receiver.bodies.values())
