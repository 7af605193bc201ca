"""Ground truth on the route: live and offline, what is brought wins, what breaks is counted."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import (
    EvaluationInput,
    EvaluationRunConfig,
    Score,
    annotate,
    configure,
    flush,
    monitor,
    reload,
    run_evaluation_sync,
)
from agenteval_otel.config import SettingsError, default_pipeline
from agenteval_otel.engine.pipeline import InlineDispatcher
from agenteval_otel.errors import EvaluationSkipped
from agenteval_otel.evaluators import ExactMatch, Func
from agenteval_otel.ground_truth import FileGroundTruthStore, GroundTruth, GroundTruthStore
from agenteval_otel.testing import RecordedTelemetry
from tests.ground_truth.support import later, written
from tests.testing.doubles import Free, Keeping

ROWS = [
    ("Where is my order?", "On its way.", "Orders", "shop"),
    ("Where is my order?", "In the kitchen.", "", "diner"),
]


class Local(GroundTruthStore):
    """Returns or raises its answer, and remembers on which thread."""

    answer: Any = None

    def find(self, evaluation_input: EvaluationInput) -> Any:
        THREADS.append(threading.current_thread())
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class Remote(GroundTruthStore):
    """Answers or breaks while it is awaited, or never answers."""

    answer: Any = None

    async def find(self, evaluation_input: EvaluationInput) -> GroundTruth:
        await asyncio.sleep(0)
        if isinstance(self.answer, BaseException):
            raise self.answer
        if self.answer is None:
            await asyncio.Event().wait()
        return GroundTruth(answer=self.answer)


THREADS: list[threading.Thread] = []


def seen_by(evaluation_input: EvaluationInput) -> Score:
    if evaluation_input.ground_truth is None:
        raise EvaluationSkipped("no ground truth")
    return Score(value=str(evaluation_input.ground_truth))


def echo(question: str) -> str:
    return question


def ask(question: str = "Where?") -> None:
    monitor(agent="shop")(echo)(question)


def failures() -> dict[str, int]:
    return default_pipeline().accounting.failures


@pytest.fixture(autouse=True)
def _begin_again() -> None:
    THREADS.clear()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path / "rows.csv", ROWS)


@pytest.fixture
def kept() -> Keeping:
    return Keeping()


def live(kept: Keeping, store: Any, **fields: Any) -> None:
    evaluator = Free(criterion_name="seen", scale="text", action=seen_by)
    configure(
        sample_rate=1.0,
        evaluators=[evaluator],
        ground_truth=store,
        **{"storage": [kept], "dispatcher": InlineDispatcher(), **fields},
    )


def scores(kept: Keeping) -> list[Any]:
    return [result.score for result in kept.results]


def test_live_answers_get_their_ground_truth(
    path: Path, kept: Keeping, telemetry: RecordedTelemetry
) -> None:
    """From the rows of the agent's module; the result and the run span say whether there was one."""
    live(kept, {"type": "file", "path": str(path)}, storage=[kept, telemetry.storage()])
    monitor(agent="shop")(echo)("where is my ORDER?")
    monitor(agent="diner")(echo)("Hello! Where is my order?")
    monitor(agent="shop")(echo)("Something else.")
    assert scores(kept) == ["On its way.", "In the kitchen.", None]
    assert [item.has_ground_truth for item in kept.saved] == [True, True, False]
    runs = [
        dict(span.attributes or {})
        for span in telemetry.spans()
        if span.name.startswith("evaluation ")
    ]
    assert [run["gen_ai.evaluation.has_ground_truth"] for run in runs] == [True, True, False]
    assert [run["gen_ai.evaluation.module"] for run in runs] == ["shop", "diner", "shop"]


def test_the_handler_may_name_the_module(path: Path, kept: Keeping) -> None:
    """In the metadata, whatever the agent is called; and what it says itself is ground truth wins."""
    live(kept, FileGroundTruthStore(path=path))

    @monitor(agent="shop")
    def handler(question: str, **facts: Any) -> str:
        annotate(**facts)
        return question

    handler("Where is my order?", metadata={"module": "diner"})
    handler("Where is my order?", ground_truth="Lost.")
    handler("Where is my order?", ground_truth=" \n")  # nothing was said: the store is asked
    assert scores(kept) == ["In the kitchen.", "Lost.", "On its way."]


BROKEN = [RuntimeError("broke"), SystemExit("broke"), asyncio.CancelledError("broke"), "text", 7]


@pytest.mark.parametrize("answer", BROKEN, ids=repr)
def test_a_store_that_breaks_costs_the_ground_truth_only(
    answer: Any, kept: Keeping, caplog: pytest.LogCaptureFixture
) -> None:
    """It is counted and logged without what it said; the answer is evaluated all the same."""
    live(kept, Local(answer=answer))
    with caplog.at_level(logging.WARNING, "agenteval_otel"):
        ask()
    assert [result.status for result in kept.results] == ["skipped"]
    assert failures() == {"ground_truth": 1}
    assert default_pipeline().accounting.outcomes()["evaluated"] == 1
    assert "part='ground_truth'" in caplog.text
    assert "broke" not in caplog.text


def test_a_store_may_ask_a_service(kept: Keeping) -> None:
    """It is awaited, for as long as it says. Then evaluation goes on without, and says why."""
    live(kept, Remote(answer="later"))
    ask()
    live(kept, Remote(timeout_s=0.01))
    ask()
    assert scores(kept) == ["later", None]
    assert failures() == {"ground_truth:timeout": 1}


@pytest.mark.parametrize("error", BROKEN[:3], ids=["raises", "exits", "cancels"])
def test_a_service_that_breaks_costs_the_ground_truth_only(
    error: BaseException, kept: Keeping
) -> None:
    """Whatever it raises, the loop goes on, live and offline."""
    live(kept, Remote(answer=error), dispatcher={"type": "pool", "linger_s": 0.0})
    for _ in range(2):
        ask()
    assert flush(20.0)
    assert scores(kept) == [None, None]
    assert failures() == {"ground_truth": 2}
    assert [item.evaluator_type for item in offline(Remote(answer=error)).run_errors] == [
        "GroundTruthStore"
    ]


@pytest.mark.parametrize(("times", "without"), [(1, 0), (1_000, 1)])
def test_a_store_that_holds_the_thread_is_asked_once_more(
    times: int, without: int, kept: Keeping
) -> None:
    """A look-up that holds it again is left out; answers that wait behind it lose nothing."""
    leave, lookups = threading.Event(), Counter[str]()

    class Holding(GroundTruthStore):
        def find(self, evaluation_input: EvaluationInput) -> GroundTruth:
            lookups[str(evaluation_input.prompt)] += 1
            if evaluation_input.prompt == "bad" and lookups["bad"] <= times:
                leave.wait(30)
            return GroundTruth(answer="found")

    live(kept, Holding(), dispatcher={"type": "pool", "linger_s": 0.0, "stall_s": 0.1})
    handler = monitor(agent="shop")(echo)
    for question in ("first", "bad", *map(str, range(30))):
        handler(question)
    assert flush(30.0)
    leave.set()
    assert Counter(scores(kept)) == {"found": 32 - without} | ({None: 1} if without else {})
    assert failures().get("ground_truth", 0) == without
    assert lookups["bad"] == 2


def test_the_caller_never_looks_it_up(kept: Keeping) -> None:
    """It happens on the background thread."""
    live(kept, Local(answer=GroundTruth(answer="a")), dispatcher={"type": "pool", "linger_s": 0.0})
    ask()
    assert flush(20.0)
    assert scores(kept) == ["a"]
    assert threading.current_thread() not in THREADS


def test_a_broken_change_is_counted_with_its_line(
    path: Path, kept: Keeping, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows from before answer; the log names the line.

    A relative path is that of the folder in which the store was loaded, wherever the process goes.
    """
    monkeypatch.chdir(path.parent)
    store = FileGroundTruthStore(path=Path(path.name))
    assert store.model_dump(mode="json")["path"] == path.name
    monkeypatch.chdir("/")
    live(kept, store)
    later(written(path, [*ROWS, (" ", "x")]))
    deadline = time.monotonic() + 20.0
    with caplog.at_level(logging.WARNING, "agenteval_otel"):
        while not failures() and time.monotonic() < deadline:
            ask("Where is my order?")  # a second after the last check it is checked again
            time.sleep(0.02)
        ask("Where is my order?")
    assert set(scores(kept)) == {"On its way."}
    assert failures() == {"ground_truth": 1}
    assert f"{path}:4: UserPrompt is empty" in caplog.text


def test_wrong_settings_say_where(tmp_path: Path) -> None:
    """At load: the setting, the file, the line."""
    wrong = tmp_path / "rows.csv"
    wrong.write_text("UserPrompt,ExpectedOutput\nx\n")
    with pytest.raises(SettingsError, match=r"ground_truth: .*rows\.csv:2: expected the columns"):
        configure(ground_truth={"type": "file", "path": str(wrong)})
    with pytest.raises(
        SettingsError, match=r"ground_truth: unknown ground_truth type 'csv'.*\. Known: file"
    ):
        configure(ground_truth={"type": "csv"})


def _store() -> Any:
    return default_pipeline().handler("any").ground_truth


def test_reloaded_settings_keep_a_store_that_says_the_same(path: Path, tmp_path: Path) -> None:
    """It goes on with what it knows; another one takes its place."""
    file = tmp_path / "settings.yaml"
    text = f"ground_truth: {{type: file, path: {path}}}\nstorage: []\ndispatcher: inline\n"
    file.write_text(text)
    configure(file)
    before = _store()
    file.write_text(text + "sample_rate: 0.5\n")
    assert reload()
    assert _store() is before
    file.write_text(text.replace("}", ", min_words: 2}") + "sample_rate: 0.5\n")
    assert reload()
    assert _store() is not before


def offline(store: Any, **fields: Any) -> Any:
    evaluator = Func(function=seen_by, criterion_name="seen", scale="text")
    config = EvaluationRunConfig(evaluators=[evaluator], ground_truth=store)
    return run_evaluation_sync(
        EvaluationInput(prompt="Where is my order?", response="a", **fields), config
    )


def test_offline_it_is_the_same(path: Path) -> None:
    """The snapshot holds what evaluators saw and how it was found; an input's own ground truth
    wins.
    """
    outcome = offline({"type": "file", "path": str(path)}, agent="diner")
    assert (outcome.results[0].score, outcome.has_ground_truth) == ("In the kitchen.", True)
    assert outcome.input_snapshot.metadata["ground_truth"] == {
        "prompt": "Where is my order?",
        "module": "diner",
        "match": "exact",
        "share": 1.0,
    }
    brought = offline(FileGroundTruthStore(path=path), ground_truth="mine", metadata={"a": 1})
    assert (brought.results[0].score, brought.input_snapshot.metadata) == ("mine", {"a": 1})
    assert not offline(None).has_ground_truth


def test_evaluators_cannot_change_the_stores_answers(tmp_path: Path) -> None:
    """What an evaluator does to a mapping does not change the store's."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"user_prompt": "Where is my order?", "expected_output": {"a": [1]}}')

    def changes(evaluation_input: EvaluationInput) -> bool:
        evaluation_input.ground_truth["a"].append(2)
        return True

    config = EvaluationRunConfig(
        evaluators=[changes], ground_truth={"type": "file", "path": str(path)}
    )
    for _ in range(2):
        run_evaluation_sync(EvaluationInput(prompt="Where is my order?", response="a"), config)
    assert config.ground_truth.rows()[0].answer == {"a": [1]}  # type: ignore[union-attr]


def test_a_row_may_have_several_answers(tmp_path: Path) -> None:
    """A JSON list of texts in a file of ground truth: an answer that is one of them matches."""
    path = tmp_path / "answers.jsonl"
    path.write_text(
        json.dumps(
            {"userPrompt": "Capital of France?", "expectedOutput": ["Paris", "Paris, France"]}
        )
    )
    config = EvaluationRunConfig(
        evaluators=[ExactMatch()], ground_truth=FileGroundTruthStore(path=path)
    )
    for response, score in (("Paris, France", 1.0), ("Lyon", 0.0)):
        result = run_evaluation_sync({"prompt": "Capital of France?", "response": response}, config)
        assert (result.overall_score, result.has_ground_truth) == (score, True)
