"""`agenteval-otel evaluate --run`: answers that a function of the application makes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import accounting
from tests.cli.conftest import CommandLine

APP = """
import asyncio, threading, time
from agenteval_otel import EvaluationInput, annotate, monitor

print("imported")
running, most, lock = 0, 0, threading.Lock()

def plain(prompt):
    print("chatter")
    return f"You asked: {prompt}"

async def asynchronous(question: str) -> str:
    global running, most
    running += 1
    most = max(most, running)
    await asyncio.sleep(0.01)
    running -= 1
    return plain(question)

def on_a_thread(question):
    global running, most
    with lock:
        running += 1
        most = max(most, running)
    time.sleep(0.01)
    with lock:
        running -= 1
    return plain(question)

def of_the_input(item: EvaluationInput):
    return {"role": "assistant", "content": f"You asked: {item.prompt}"}

async def streamed(prompt):
    for word in ("You ", "asked: ", prompt):
        yield word

class Agent:
    def __call__(self, prompt, temperature=0.0):
        return plain(prompt)

agent = Agent()

@monitor
async def monitored(prompt):
    annotate(context=["a document"], model="m-1", metadata={"release": 7})
    return plain(prompt)

def failing(prompt):
    if prompt == "b":
        raise RuntimeError("no connection")
    if prompt == "c":
        raise SystemExit(3)
    return plain(prompt)

def of_two(first, second): ...
"""


Stored = list[dict[str, Any]]
Run = Callable[..., Stored]


@pytest.fixture
def app(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The application's module, which can be imported."""
    cli.file("app_of_tests.py", APP)
    monkeypatch.syspath_prepend(cli.folder)
    yield
    sys.modules.pop("app_of_tests", None)


@pytest.fixture
def run(cli: CommandLine, app: None) -> Run:
    """Evaluates `a`, `b` and `c`, or more; gives what was stored of each."""
    rows = [{"prompt": letter, "groundTruth": "g", "usage": {"inputTokens": 3}} for letter in "abc"]

    def run(function: str, options: str = "", times: int = 1, code: int = 0) -> Stored:
        cli.file("questions.jsonl", "".join(json.dumps(row) + "\n" for row in rows) * times)
        command = f"evaluate questions.jsonl --run app_of_tests:{function} --results r.jsonl"
        cli(f"{command} {options}", code=code)
        return [json.loads(line) for line in Path("r.jsonl").read_text().splitlines()]

    return run


@pytest.mark.parametrize(
    "function",
    ["plain", "asynchronous", "on_a_thread", "of_the_input", "streamed", "agent", "monitored"],
)
def test_a_function_makes_the_answers(run: Run, function: str) -> None:
    """Of the prompt or of the input, sync or async; what the dataset says of an earlier answer is
    dropped.
    """
    inputs = [stored["inputSnapshot"] for stored in run(function)]
    assert [item["response"] for item in inputs] == ["You asked: a", "You asked: b", "You asked: c"]
    assert all(item["groundTruth"] == "g" and "usage" not in item for item in inputs)


def test_what_the_function_annotates_is_evaluated(run: Run) -> None:
    """Also below @monitor, which evaluates nothing live meanwhile."""
    before = accounting()
    first = run("monitored")[0]["inputSnapshot"]
    assert (first["model"], first["context"]) == ("m-1", {"documents": ["a document"]})
    assert first["metadata"] == {"release": 7}
    assert first["durationS"] > 0
    assert accounting() == before


@pytest.mark.parametrize("function", ["asynchronous", "on_a_thread"])
def test_calls_at_once_are_bounded(run: Run, function: str) -> None:
    """By --concurrency, on the event loop and on threads."""
    assert len(run(function, "--concurrency 3", times=10)) == 30
    assert 1 < sys.modules["app_of_tests"].most <= 3


def test_a_failing_call_is_a_failed_input(run: Run, cli: CommandLine) -> None:
    """It has no score and no part in a mean; the others are evaluated, and the exit code is 1."""
    stored = run("failing", "--report json --report junit=junit.xml", code=1)
    report = json.loads(cli.out)
    assert [result.get("overallScore") for result in stored] == [1.0, None, None]
    assert (report["inputs"], report["inputs_with_failures"]) == (3, 2)
    assert report["overall_score"]["scores"] == 1
    first = "answer failed for 2 inputs, first questions.jsonl:2: RuntimeError: no connection"
    for words in (first, "imported", "chatter"):
        assert words in cli.err
    assert 'errors="2"' in Path("junit.xml").read_text()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            "of_two",
            "expected a function of one argument: the prompt, or an EvaluationInput, found app_of_tests:of_two(first, ",
        ),
        ("most", "expected module:function, found 'app_of_tests:most' of type int"),
        ("nope", "'app_of_tests:nope' cannot be imported: AttributeError"),
    ],
)
def test_a_wrong_function_is_refused(
    app: None, cli: CommandLine, function: str, message: str
) -> None:
    """Before anything runs."""
    cli.file("q.csv", "prompt\nWhy?\n")
    cli(f"evaluate q.csv --run app_of_tests:{function} --results r.jsonl", code=2)
    assert f"--run: {message}" in cli.err
    assert not Path("r.jsonl").exists()


def test_an_input_without_a_prompt_is_a_problem_of_the_dataset(app: None, cli: CommandLine) -> None:
    """With its line; a function of the input needs none."""
    cli.file("q.csv", "question\nWhy?\n")
    cli("evaluate q.csv --run app_of_tests:plain", code=2)
    assert "q.csv:2: prompt: is missing: what --run passes to the function" in cli.err
    cli("evaluate q.csv --run app_of_tests:plain --column prompt=question")
    cli("evaluate q.csv --run app_of_tests:of_the_input")
