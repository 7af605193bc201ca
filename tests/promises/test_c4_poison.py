"""C4: one poison item costs one item: the others of its batch arrive whole, and it arrives made
safe or is counted.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import Field

from agenteval_otel import annotate, monitor
from agenteval_otel.engine.pipeline import PoolDispatcher
from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators import CriterionEvaluator
from agenteval_otel.evaluators.base import Execution
from agenteval_otel.models import EvaluationInput, Score
from agenteval_otel.storage import (
    EvaluationStorageProvider,
    JsonFileStorageProvider,
    OtlpStorageProvider,
    SqlStorageProvider,
)
from agenteval_otel.testing import RecordedTelemetry
from tests.backends.collector import Collector
from tests.backends.postgresql import PostgreSQL
from tests.backends.sdk import sdk_to
from tests.promises.bench import pipeline_of
from tests.promises.figures import Recorder

BATCH, FEW = 512, 48
RESPONSE_ID = "gen_ai.response.id"
PATIENCE_S = 60.0
"""How long is waited for what a batch of calls comes to, however slow the machine is."""


SURROGATE = "poisoned \ud800 text"
LARGE = "poisoned " + "x" * (10 * 1024 * 1024)


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("hostile")

    __repr__ = __len__ = __bool__ = __iter__ = __eq__ = __hash__ = __str__  # type: ignore[assignment]


class HostileError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("hostile")

    __repr__ = __str__


class Poison(NamedTuple):
    """What one of the calls does otherwise: its answer, prompt, facts, agent, and what its
    evaluator does.
    """

    answer: Any = "poisoned"
    prompt: Any = "a question"
    facts: dict[str, Any] = {}
    agent: str = "agent"
    score: Any = None


def _cycle() -> Any:
    cycle: dict[str, Any] = {"text": "poisoned"}
    cycle["again"] = [cycle]
    return cycle


def _deep() -> Any:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    return deep


_VALUES: dict[str, Callable[[], Any]] = {
    "surrogate": lambda: SURROGATE,
    "NUL": lambda: "poisoned \0 text",
    "10 MB": lambda: LARGE,
    "cycle": _cycle,
    "depth": _deep,
    "hostile": Hostile,
    "not serialisable": object,
    "NaN": lambda: {"poisoned": float("nan")},
    "odd keys": lambda: {SURROGATE: 1, ("a",): 2, None: 3},
}
_FACTS = (
    "metadata", "context", "ground_truth", "tool_calls", "message_history", "model", "conversation_id", "response_id",
    "usage", "cost", "session_id", "response", "no such fact",
)  # fmt: skip
_SCORES: dict[str, Any] = {
    "NaN score": Score(value=float("nan")),
    "infinite score": Score(value=float("inf")),
    "huge score": Score(value=10**400),
    "no score": object(),
    "category": Score(value=SURROGATE),
    "large category": Score(value=LARGE),
    "NUL category": Score(value="a\0b"),
    "label": Score(value=1.0, label=SURROGATE),
    "large label": Score(value=1.0, label=LARGE),
    "reason code": Score(value=1.0, reason_code=SURROGATE),
    "large reason code": Score(value=1.0, reason_code=LARGE),
    "reasoning": Score(value=1.0, reasoning=SURROGATE),
    "metadata": Score(value=1.0, metadata=_cycle()),
    "hostile metadata": Score(value=1.0, metadata={"a": Hostile()}),
    "error type": EvaluationError("x", error_type=SURROGATE),
    "large error type": EvaluationError("x", error_type=LARGE),
    "error message": ValueError(SURROGATE),
    "large error": ValueError(LARGE),
    "hostile error": HostileError(),
    "skip": EvaluationSkipped(SURROGATE),
}

_AGENTS = {"surrogate": "poisoned \ud800", "NUL": "poisoned \0", "10 MB": LARGE}

POISONS = (
    *(f"{place}: {name}" for place in ("answer", "prompt") for name in _VALUES),
    *(f"fact {fact}: {name}" for fact in _FACTS for name in _VALUES),
    *(f"judge: {name}" for name in _SCORES),
    *(f"agent: {name}" for name in _AGENTS),
)
"""By where the poison is, and what."""


def poison_of(title: str) -> Poison:
    place, _, name = title.partition(": ")
    if place == "judge":
        return Poison(score=_SCORES[name])
    if place == "agent":
        return Poison(agent=_AGENTS[name])
    value = _VALUES[name]()
    if place.startswith("fact "):
        return Poison(facts={place.removeprefix("fact "): value})
    return Poison(**{place: value})


SENT = (
    "answer: surrogate", "answer: 10 MB", "prompt: surrogate", "prompt: cycle", "fact metadata: hostile",
    "fact model: surrogate", "fact conversation_id: 10 MB", "judge: label", "judge: large label", "judge: error type",
    "judge: huge score", "judge: large reason code", "agent: surrogate", "agent: 10 MB",
)  # fmt: skip
"""Those that are sent to the real Collector: one or two of each field that is exported."""


class Judged(CriterionEvaluator, type="Judged"):
    """Passes healthy responses; does with the poisoned one what the poison says."""

    criterion_name: str = "judged"
    execution: Execution | None = "inline"
    poison: Any = Field(default=None, exclude=True, repr=False)

    def score(self, evaluation_input: EvaluationInput) -> Score:
        if self.poison.score is None or "poisoned" not in evaluation_input.response_text:
            return Score(value=1.0, passed=True)
        if isinstance(self.poison.score, BaseException):
            raise self.poison.score
        poisoned: Score = self.poison.score
        return poisoned


class Batch:
    """Calls of which one is poisoned, and where their results go."""

    def __init__(
        self, poison: Poison, otlp: EvaluationStorageProvider, path: Path, size: int
    ) -> None:
        self._poison, self.path, self.size = poison, path, size
        self.healthy = {f"healthy-{number}" for number in range(size) if number != size // 2}
        # A slow machine is neither sampled less on nor taken for one that hangs.
        dispatcher = PoolDispatcher(max_items=2 * size, linger_s=0.0, stall_s=PATIENCE_S)
        storage = (otlp, JsonFileStorageProvider(path=path))
        self.pipeline = pipeline_of(
            Judged(poison=poison), storage=storage, dispatcher=dispatcher, sheds=False
        )
        self._healthy = monitor(pipeline=self.pipeline, agent="agent")(self._answer)
        self._poisoned = monitor(pipeline=self.pipeline, agent=poison.agent)(self._answer)

    @staticmethod
    def _answer(prompt: Any, answer: Any, facts: dict[str, Any]) -> Any:
        annotate(**facts)
        return answer

    def run(self) -> None:
        """Make the calls, the poisoned one in their middle, and wait until all are settled."""
        poison = self._poison
        for number in range(self.size):
            if number == self.size // 2:
                self._poisoned(
                    poison.prompt, poison.answer, {"response_id": "poisoned", **poison.facts}
                )
            else:
                self._healthy("a question", "an answer", {"response_id": f"healthy-{number}"})
        assert self.pipeline.flush(PATIENCE_S)

    def assert_arrived(self, ids: list[str]) -> None:
        """All healthy ones arrived, every call has its outcome, and a poisoned one that did not
        arrive left a mark.
        """
        assert {name for name in ids if name.startswith("healthy")} == self.healthy
        delivered = len(ids) - len(self.healthy)
        assert delivered <= 1
        outcomes, failures = self.pipeline.accounting.outcomes(), self.pipeline.accounting.failures
        assert sum(outcomes.values()) == self.size
        assert outcomes["evaluated"] >= self.size - 1
        skipped = self.pipeline.accounting.results["skipped"]
        assert delivered == 1 or failures or skipped or outcomes["evaluated"] == self.size - 1, (
            outcomes,
            failures,
        )

    def lines(self) -> list[dict[str, Any]]:
        text = self.path.read_bytes().decode("utf-8")
        return [json.loads(line, parse_constant=_refuse) for line in text.splitlines()]


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


@pytest.mark.parametrize("name", POISONS)
def test_a_poisoned_response_leaves_the_others_whole(
    name: str, telemetry: RecordedTelemetry, tmp_path: Path, promise: Recorder
) -> None:
    """In memory and in the file: all others arrive as they are, the poisoned one is made safe or
    counted.
    """
    otlp = telemetry.storage(detail="result", content="span_and_event")
    batch = Batch(poison_of(name), otlp, tmp_path / "results.jsonl", FEW)
    batch.run()
    lines = [line.get("responseId", "") for line in batch.lines()]
    ids = [event.attributes.get(RESPONSE_ID, "") for event in telemetry.events()]
    batch.assert_arrived(lines)
    batch.assert_arrived(ids)
    for event in telemetry.events():
        _assert_safe(event.body, *event.attributes.values())
    for span in telemetry.spans():
        _assert_safe(span.name, *span.attributes.values())
    promise(
        "C4",
        figure=f"in memory and in a file: {len(batch.healthy)} healthy of a batch of {FEW} delivered",
    )
    assert batch.pipeline.shutdown(10.0)


def _assert_safe(*values: Any) -> None:
    """No lone surrogate, no NUL, nothing beyond the cap: one of them would cost its whole batch."""
    for value in values:
        if isinstance(value, str):
            value.encode("utf-8")
            assert "\0" not in value
            assert len(value) <= 263_000


@pytest.mark.backend
@pytest.mark.parametrize(
    ("name", "protocol"), list(zip(SENT, itertools.cycle(("grpc", "http")), strict=False))
)
def test_the_collector_gets_the_others(
    name: str, protocol: str, collector: Collector, tmp_path: Path, promise: Recorder
) -> None:
    """Over the wire: 511 events, and spans with results, of 512 arrive in spite of the poisoned one,
    and so do the metrics.
    """
    service = f"poison-{protocol}-{name}".replace(" ", "-")
    with sdk_to(collector, service=service, protocol=protocol) as sdk:
        otlp = OtlpStorageProvider(
            tracer_provider=sdk.tracers,
            logger_provider=sdk.loggers,
            meter_provider=sdk.meters,
            content="span_and_event",
        )
        batch = Batch(poison_of(name), otlp, tmp_path / "results.jsonl", BATCH)
        batch.run()
        assert batch.pipeline.shutdown(10.0)
    logs = collector.wait_for(lambda seen: _many(seen.logs(service)), timeout_s=20)
    spans = collector.wait_for(lambda seen: _many(seen.spans(service)), timeout_s=20)
    batch.assert_arrived([log.attributes.get(RESPONSE_ID, "") for log in logs])
    assert batch.healthy <= {line.get("responseId") for line in batch.lines()}
    assert batch.healthy <= {span.attributes.get(RESPONSE_ID) for span in spans}
    results = collector.wait_for(
        lambda seen: seen.metric("agenteval.evaluation.results", service), timeout_s=20
    )
    assert sum(point.value or 0 for point in results.points) >= BATCH - 1
    promise(
        "C4",
        figure=f"at a real Collector: {len(batch.healthy)} healthy of a batch of {BATCH} delivered",
    )


def _many(actual: list[Any]) -> list[Any]:
    return actual if len(actual) >= BATCH - 1 else []


def assert_stored(name: str, storage: SqlStorageProvider, path: Path) -> None:
    """Run a batch with this poison: the healthy ones are stored, and all of them are read back
    whole.
    """
    batch = Batch(poison_of(name), storage, path, FEW)
    batch.run()
    actual = [
        storage.read(identifier.evaluation_id)
        for identifier in storage.query(criterion="judged", limit=10 * FEW)
    ]
    ids = [whole.response_id or "" for whole in actual if whole is not None]
    assert len(actual) == len(ids)
    batch.assert_arrived(ids)
    assert batch.pipeline.shutdown(10.0)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SENT else pytest.mark.full) for name in POISONS]
)
def test_a_poisoned_response_costs_no_other_row(
    name: str, tmp_path: Path, promise: Recorder
) -> None:
    """In SQLite: one or two kinds of poison for each field; every kind in the long form."""
    assert_stored(name, SqlStorageProvider(path=tmp_path / "x.db"), tmp_path / "x.jsonl")
    promise("C4", figure=f"in SQLite: {FEW - 1} healthy of a batch of {FEW} stored")


@pytest.mark.backend
@pytest.mark.parametrize("name", SENT)
def test_a_poisoned_response_costs_no_other_row_on_a_server(
    name: str, postgresql: PostgreSQL, tmp_path: Path, promise: Recorder
) -> None:
    """In PostgreSQL, which refuses more: one or two kinds of poison for each field."""
    assert_stored(name, SqlStorageProvider(url=postgresql.url), tmp_path / "x.jsonl")
    promise("C4", figure=f"in PostgreSQL: {FEW - 1} healthy of a batch of {FEW} stored")
