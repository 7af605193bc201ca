"""Capabilities: their hooks are called in order, at their moments, and one that breaks costs itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import accounting, configure, flush, monitor
from agenteval_otel.config import default_pipeline
from agenteval_otel.engine.capability import Capability, Evaluated, Host
from agenteval_otel.engine.handler import HandlerSettings
from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.engine.signals import StateChange
from agenteval_otel.engine.task import Task
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Repetition, ResponseHealth
from agenteval_otel.models import EvaluationInput, EvaluationResult
from agenteval_otel.models.value import copy_with
from agenteval_otel.sampling import ConversationSampler, RatioSampler
from agenteval_otel.storage.erasure import Erasure
from agenteval_otel.testing import RecordedTelemetry
from tests.pipelines import pipeline_with


class CountWords(Capability):
    """Counts the words of answers."""

    name = "words"

    def __init__(self) -> None:
        self.words = 0

    def on_response(self, evaluated: Evaluated) -> None:
        self.words += len(evaluated.input.response_text.split())


class Noting(Capability):
    """Notes which of its hooks are called, and breaks in those that are named."""

    def __init__(self, name: str, notes: list[str], breaks: str = "", takes_s: float = 0.0) -> None:
        self.name, self._notes, self._breaks, self._takes_s = name, notes, breaks, takes_s

    def _note(self, hook: str) -> None:
        self._notes.append(f"{self.name} {hook}")
        if self._breaks == hook:
            raise RuntimeError("it broke")

    def on_results(
        self, settings: HandlerSettings, results: list[EvaluationResult]
    ) -> list[EvaluationResult]:
        self._note("results")
        return [copy_with(result, {"reasoning": self.name}) for result in results]

    def on_response(self, evaluated: Evaluated) -> None:
        self._note("response")

    def erase(self, erasure: Erasure) -> dict[str, int]:
        self._note("erase")
        return {"notes": 2}

    def drain(self, reason: str) -> bool:
        self._note("drain")
        return self.name == "second"

    def flush(self, timeout_s: float) -> bool:
        self._note("flush")
        return True

    def close(self, timeout_s: float) -> bool:
        self._note("close")
        time.sleep(min(self._takes_s, timeout_s))
        return self._takes_s <= timeout_s


Made = tuple[Pipeline, Callable[..., Any]]


@pytest.fixture
def made(pipeline: Pipeline) -> Made:
    """A pipeline that evaluates inline, and a handler on it."""

    @monitor(pipeline=pipeline, agent="shop")
    def handler(question: str) -> str:
        return f"An answer to {question}"

    return pipeline, handler


def test_a_capability_is_a_class_and_a_line(made: Made) -> None:
    """It sees each answer whose results are emitted."""
    pipeline, handler = made
    words = CountWords()
    pipeline.capabilities.add(words)
    handler("this")
    handler("that one")
    assert words.words == 4 + 5
    assert pipeline.shutdown(1.0)


def test_one_that_breaks_costs_itself(made: Made, telemetry: RecordedTelemetry) -> None:
    """It is counted by its name; the next one is called, and the answer has its results."""
    pipeline, handler = made
    notes: list[str] = []
    for breaks in ("results", "response"):
        pipeline.capabilities.add(Noting(f"broken {breaks}", notes, breaks))
    pipeline.capabilities.add(Noting("last", notes))
    handler("this")
    assert notes == [
        f"{name} {hook}"
        for hook in ("results", "response")
        for name in ("broken results", "broken response", "last")
    ]
    assert pipeline.accounting.failures["broken results"] == 1
    assert pipeline.accounting.failures["broken response"] == 1
    assert pipeline.accounting.outcomes()["evaluated"] == 1
    pipeline.shutdown(1.0)


def test_the_end_is_in_two_phases_and_in_reverse(
    made: Made, telemetry: RecordedTelemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All hand back what waits and write it, before telemetry may take all the time; they are closed in
    reverse order, each within half of what is left, and what they lose is in the last export.
    """
    pipeline, handler = made
    notes: list[str] = []
    for member in (
        Noting("first", notes),
        Noting("second", notes, "close"),
        Noting("slow", notes, takes_s=60),
    ):
        pipeline.capabilities.add(member)
    handler("this")
    notes.clear()

    def hang(*_: Any, **__: Any) -> bool:
        notes.append("telemetry")
        return False

    monkeypatch.setattr(type(telemetry.storage().emitter.providers), "flush", hang)
    assert not pipeline.shutdown(1.0)
    assert notes == [
        "first drain",
        "second drain",
        "slow drain",
        "first flush",
        "second flush",
        "slow flush",
        "telemetry",
        "slow close",
        "second close",
        "first close",
        "telemetry",
    ]
    assert pipeline.accounting.failures["second"] == 1


def test_what_sends_later_is_closed_last(made: Made) -> None:
    """One that hangs takes no time from answers, and does not change the outcome of the end."""
    pipeline, handler = made
    notes: list[str] = []
    later = Noting("later", notes, takes_s=60)
    later.sends_later = True
    pipeline.capabilities.add(Noting("first", notes))
    pipeline.capabilities.add(later)
    handler("this")
    assert pipeline.shutdown(1.0)
    assert [note for note in notes if "close" in note] == ["first close", "later close"]


def test_what_they_erase_adds_up(made: Made) -> None:
    """Each says what it gave up; one that cannot stops the erasure, so that it is repeated."""
    pipeline, _ = made
    notes: list[str] = []
    pipeline.capabilities.add(Noting("first", notes))
    pipeline.capabilities.add(Noting("second", notes))
    erased = pipeline.erase(Erasure(conversations=["c-1"]))
    assert erased["notes"] == 4
    pipeline.capabilities.add(Noting("third", notes, "erase"))
    with pytest.raises(RuntimeError):
        pipeline.erase(Erasure(conversations=["c-1"]))
    pipeline.shutdown(1.0)


class Reader(Capability):
    """Takes answers over that are short."""

    name = "reader"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.taken: list[Task] = []

    def on_answer(self, task: Task, evaluation_input: EvaluationInput) -> bool:
        is_short = len(evaluation_input.response_text) < 20
        if is_short and task.take_end():
            self.taken.append(task)
        return not is_short


def test_an_answer_that_is_taken_over_is_neither_evaluated_nor_counted(
    telemetry: RecordedTelemetry,
) -> None:
    """Its outcome is the capability's to give."""
    configure(
        evaluators=[ResponseHealth()],
        storage=[telemetry.storage()],
        sample_rate=1.0,
        dispatcher="inline",
        capabilities=[Reader],
    )
    answer = monitor(agent="shop")(lambda question: "An answer to " + question)
    answer("you")
    answer("somebody who asks more")
    assert flush(10)
    reader = default_pipeline().capabilities.of(Reader)
    assert reader is not None
    (task,) = reader.taken
    assert (len(telemetry.events()), accounting()["evaluated"]) == (1, 1)
    task.finish("evaluated")
    assert accounting()["evaluated"] == 2


@pytest.mark.parametrize("name", ["word_reader", "tests.engine.test_capability:Reader"])
def test_settings_name_a_capability(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the entry point of an installed package, or as ``module:class``."""
    installed = tmp_path / "reader-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: reader\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        "[agenteval_otel.capabilities]\nword_reader = tests.engine.test_capability:Reader\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    settings = tmp_path / "agenteval.yaml"
    settings.write_text(f"capabilities: ['{name}']\n")
    configure(settings)
    assert default_pipeline().capabilities.of(Reader) is not None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("no_such", r"capabilities\[0\].*entry point of agenteval_otel.capabilities"),
        ("no.such:Thing", r"capabilities\[0\].*cannot be imported"),
        (7, r"capabilities\[0\].*found int"),
        (lambda host: [], "expected a Capability, found list"),
    ],
)
def test_a_capability_that_cannot_be_made_is_refused(value: Any, words: str) -> None:
    """With the place, and what could stand there."""
    with pytest.raises(ConfigurationError, match=words):
        configure(capabilities=[value])


def test_evaluators_of_conversations_need_what_puts_turns_together() -> None:
    """A pipeline made by hand without it refuses them: they would never run."""
    pipeline = pipeline_with(sampler=ConversationSampler(), evaluators=(Repetition(),))
    with pytest.raises(ConfigurationError, match="puts turns together"):
        pipeline.handler("shop")


class Forgetful(Capability):
    """Returns nothing where it should."""

    name = "forgetful"

    def on_answer(self, task: Task, evaluation_input: EvaluationInput) -> bool:
        return None  # type: ignore[return-value]

    def on_results(
        self, settings: HandlerSettings, results: list[EvaluationResult]
    ) -> list[EvaluationResult]:
        return None  # type: ignore[return-value]


def test_a_hook_that_returns_nothing_changes_nothing(
    made: Made, telemetry: RecordedTelemetry
) -> None:
    """The answer is evaluated as without it, and results that are none are counted."""
    pipeline, handler = made
    pipeline.capabilities.add(Forgetful())
    handler("you")
    assert pipeline.flush(5.0)
    assert len(telemetry.events()) == 1
    assert pipeline.accounting.outcomes()["evaluated"] == 1
    assert pipeline.accounting.failures["forgetful"] == 1


class Hearing(Capability):
    """Keeps the changes that it hears of, and breaks after each."""

    def __init__(self) -> None:
        self.changes: list[StateChange] = []

    def on_change(self, change: StateChange) -> None:
        self.changes.append(change)
        raise RuntimeError("it broke")


def test_a_change_reaches_every_capability(telemetry: RecordedTelemetry) -> None:
    """What announces it knows none of them, and one that breaks costs itself."""
    heard = [Hearing(), Hearing()]
    hosts: list[Host] = []

    def keep(host: Host) -> Capability:
        hosts.append(host)
        return Capability()

    makers = [keep, *(lambda _, hearing=hearing: hearing for hearing in heard)]
    pipeline = pipeline_with(
        sampler=RatioSampler(),
        evaluators=(ResponseHealth(),),
        storage=(telemetry.storage(),),
        capabilities=makers,
    )
    change = StateChange("judge", "kind", None, is_bad=True, at_ns=1)
    hosts[0].announce(change)
    assert [hearing.changes for hearing in heard] == [[change], [change]]
    assert pipeline.accounting.failures == {"capability": 2}
