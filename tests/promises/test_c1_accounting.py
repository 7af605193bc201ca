"""C1: whatever goes wrong at once, each call has one outcome and each evaluated response all of its
results.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from opentelemetry.sdk.metrics import Counter as SdkCounter
from opentelemetry.sdk.metrics import Histogram, MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.metrics.view import View
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult

from agenteval_otel import annotate, monitor, semconv
from agenteval_otel.engine.pipeline import Pipeline, PoolDispatcher
from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators import Func, ResponseHealth
from agenteval_otel.models import EvaluationInput
from agenteval_otel.sampling import RatioSampler, SamplingDecision
from agenteval_otel.storage import OtlpStorageProvider
from agenteval_otel.testing import RecordedTelemetry
from tests.promises.bench import pipeline_of
from tests.promises.figures import Recorder, sized
from tests.promises.host_sdk import HostSdk, Keeper
from tests.promises.programs import together

SECONDS = sized(10, 300)
TIMEOUT_S = 0.05
CRITERIA = 3
_turn = itertools.count()


class FaultySampler(RatioSampler, type="faulty"):
    def decide(self, context: Any) -> SamplingDecision:
        turn = next(_turn)
        if turn % 7 == 0:
            raise RuntimeError("sampler")
        return SamplingDecision(turn % 5 != 0, 0.8, "ratio")


class OtherError(BaseException):
    """No `Exception`."""


# What an evaluator gives or raises, by turns.
FAULTS: tuple[Any, ...] = (
    True,
    0.5,
    ValueError("x"),
    SystemExit(3),
    float("nan"),
    object(),
    EvaluationSkipped("nothing to say"),
    None,
    10**400,
    EvaluationError("\ud800", error_type="\ud800"),
    MemoryError(),
    "label",
    OtherError(),
    asyncio.CancelledError(),
    GeneratorExit(),
)


def fault_of(turn: int) -> Any:
    fault = FAULTS[turn % len(FAULTS)]
    if isinstance(fault, BaseException):
        raise fault.with_traceback(None)
    return fault


def faulty(value: Any) -> Any:
    return fault_of(next(_turn))


async def faulty_model(value: Any) -> Any:
    """An awaiting evaluator that does all of these, and hangs at times."""
    turn = next(_turn)
    if turn % 50 == 0:
        await asyncio.Event().wait()
    await asyncio.sleep(0)
    return fault_of(turn)


class FaultyStorage:
    type = "faulty"

    async def save_result(self, aggregated: Any) -> None:
        turn = next(_turn)
        if turn % 5 == 1:
            raise OSError("disk full")
        if turn % 25 == 2:
            raise SystemExit("storage")


class Load:
    """Callers of every kind until the time is over; counts its calls."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.calls = 0
        self._lock, self._over = threading.Lock(), time.monotonic() + SECONDS
        watch = monitor(pipeline=pipeline)
        self._function, self._coroutine = watch(_function), watch(_coroutine)
        self._stream, self._async_stream = watch(_stream), watch(_async_stream)

    def _counted(self) -> bool:
        """Whether there is time for one more call, which is then counted."""
        if time.monotonic() >= self._over:
            return False
        with self._lock:
            self.calls += 1
        return True

    def run(self) -> None:
        """Two threads that call, one that streams, one with an event loop."""
        together(
            [self._call, self._call, self._read, lambda: asyncio.run(self._tasks())], SECONDS + 60.0
        )

    def _call(self) -> None:
        dice, pause = random.Random(1), threading.Event()
        while self._counted():
            try:
                self._function(dice.random() < 0.2)
            except ValueError:
                pause.wait(0.001)

    def _read(self) -> None:
        dice, pause = random.Random(2), threading.Event()
        while self._counted():
            chunks = self._stream()
            for _ in range(dice.randint(1, 4)):
                next(chunks, None)
            del chunks  # at times before its end
            pause.wait(0.0005)

    async def _tasks(self) -> None:
        dice = random.Random(3)
        while self._counted():
            kind = dice.randint(0, 2)
            if kind == 0:
                stream = self._async_stream()
                await anext(stream)
                await stream.aclose()
                continue
            task = asyncio.ensure_future(self._coroutine())
            await asyncio.wait({task}, timeout=0)
            if kind == 1:
                task.cancel()
            await asyncio.wait({task})


def _function(fails: bool) -> str:
    if fails:
        raise ValueError("the host's own")
    return "an answer"


async def _coroutine() -> str:
    await asyncio.sleep(0)
    return "an answer"


def _stream() -> Iterator[str]:
    yield from ("an ", "answer", ".")


async def _async_stream() -> AsyncIterator[str]:
    yield "an "
    yield "answer"


@pytest.fixture
def faulty_pipeline(telemetry: RecordedTelemetry) -> Iterator[Pipeline]:
    made = pipeline_of(
        ResponseHealth(),
        Func.of(faulty, criterion_name="blocking"),
        Func.of(faulty_model, criterion_name="model", timeout_s=TIMEOUT_S),
        sampler=FaultySampler(),
        storage=(FaultyStorage(), telemetry.storage()),
        dispatcher=PoolDispatcher(max_items=64, max_bytes=200_000),
    )
    yield made
    made.shutdown(5.0)


@pytest.mark.sized
def test_outcomes_and_results_add_up(faulty_pipeline: Pipeline, promise: Recorder) -> None:
    """With every fault at once the outcomes are the calls, and each evaluated response has a result
    of each of its criteria.
    """
    load = Load(faulty_pipeline)
    load.run()
    faulty_pipeline.flush(30.0)  # False where a save failed
    assert faulty_pipeline.dispatcher.flush(1.0)
    outcomes, results = faulty_pipeline.accounting.outcomes(), faulty_pipeline.accounting.results
    due = CRITERIA * outcomes["evaluated"]
    reported = (
        f"{sum(outcomes.values())} outcomes, {due} results due, {sum(results.values())} counted"
    )
    promise("C1", figure=f"{load.calls} calls in {SECONDS} s: {reported}")
    assert sum(outcomes.values()) == load.calls
    for name in ("evaluated", "not_sampled", "dropped_queue_full", "pipeline_failed"):
        assert outcomes[name] > 0, name
    assert sum(results.values()) == due
    assert min(results.values()) > 0


# --- the application's own SDK
# ----------------------------------------------------------------------------------------

NAME, LABEL = "gen_ai.evaluation.name", "gen_ai.evaluation.score.label"
BY = {semconv.METRIC_RESULTS.name: LABEL, semconv.METRIC_RESPONSES.name: "agenteval.outcome"}
DELTA = dict.fromkeys((SdkCounter, ObservableCounter, Histogram), AggregationTemporality.DELTA)


class Reader(InMemoryMetricReader):
    """Keeps every collection: a flush collects too, and what it took is not there again under delta
    temporality.
    """

    def __init__(self, temporality: Any = None) -> None:
        self.collected: list[Any] = []
        self.series = 0
        super().__init__(preferred_temporality=temporality or {})

    def _receive_metrics(self, metrics_data: Any, *_: Any, **__: Any) -> None:
        self.collected.append(metrics_data)

    def sums(self, last: bool = False) -> dict[str, Counter[Any]]:
        """The sums of every metric over all collections, or of the last; by label, outcome or
        criterion.
        """
        self.collect()
        sums: defaultdict[str, Counter[Any]] = defaultdict(Counter)
        collected = self.collected[-1:] if last else self.collected
        resources = [resource for data in collected if data for resource in data.resource_metrics]
        scopes = [scope for resource in resources for scope in resource.scope_metrics]
        for metric in (metric for scope in scopes for metric in scope.metrics):
            name = BY.get(metric.name, NAME)
            self.series += len(metric.data.data_points)
            for point in metric.data.data_points:
                value = point.count if hasattr(point, "count") else point.value
                sums[metric.name][point.attributes.get(name)] += value
        return sums


def is_even(evaluation_input: EvaluationInput) -> bool:
    number = int(evaluation_input.response_text)
    if number % 10 == 9:
        raise ValueError("ninth")
    return number % 2 == 0


@contextmanager
def metered(
    *views: View, temporality: Any = None, criteria: int = 1
) -> Iterator[tuple[Pipeline, Reader]]:
    """A pipeline behind the application's meter provider, with evaluators of even numbers."""
    reader = Reader(temporality)
    provider = MeterProvider([reader], views=views, shutdown_on_exit=False)
    evaluators = [Func.of(is_even, criterion_name=f"even_{number}") for number in range(criteria)]
    pipeline = pipeline_of(
        *evaluators, telemetry=OtlpStorageProvider(meter_provider=provider, signals={"metrics"})
    )
    try:
        yield pipeline, reader
    finally:
        pipeline.shutdown(5.0)
        provider.shutdown()


def answer_with(pipeline: Pipeline, numbers: range, agent: str = "agent") -> None:
    """Answer with each of the numbers."""
    handler = monitor(pipeline=pipeline, agent=agent)(lambda number: str(number))
    for number in numbers:
        handler(number)


def test_delta_temporality(promise: Recorder) -> None:
    """Under delta temporality the collected parts of every counter and histogram add up to the
    totals.
    """
    with metered(temporality=DELTA) as (pipeline, reader):
        for turn in range(5):
            answer_with(pipeline, range(100 * turn))
            assert pipeline.flush(30)
            reader.collect()
        sums, calls = reader.sums(), 1_000
        outcomes, results = pipeline.accounting.outcomes(), pipeline.accounting.results
    assert (outcomes["evaluated"], results["scored"], results["failed"]) == (calls, 900, 100)
    assert sums[semconv.METRIC_RESULTS.name] == {"pass": 500, "fail": 400}
    assert sums[semconv.METRIC_RESPONSES.name]["evaluated"] == calls
    assert sums[semconv.METRIC_ERRORS.name] == {"even_0": 100}
    assert sums[semconv.METRIC_SCORE.name] == {"even_0": 900}
    assert sums[semconv.METRIC_WEIGHT.name]["even_0"] == 900
    assert sums[semconv.METRIC_WEIGHTED_SCORE.name]["even_0"] == 500
    assert sums[semconv.METRIC_LAG.name].total() == calls
    promise("C1", figure=f"delta temporality: {calls} calls in 5 collections add up")


def test_views_that_drop_or_rename() -> None:
    """A View that drops attributes merges series and loses no count; a View that renames a metric
    costs no other.
    """
    views = (
        View(instrument_name=semconv.METRIC_RESULTS.name, attribute_keys=set()),
        View(instrument_name=semconv.METRIC_SCORE.name, name="renamed", attribute_keys=set()),
        View(instrument_name="agenteval.evaluation.w*", attribute_keys={"no such attribute"}),
    )
    with metered(*views) as (pipeline, reader):
        for agent in ("first", "second"):
            answer_with(pipeline, range(100), agent)
        assert pipeline.flush(30)
        sums = reader.sums(last=True)
    assert (
        sums[semconv.METRIC_RESULTS.name]
        == sums["renamed"]
        == sums[semconv.METRIC_WEIGHT.name]
        == {None: 180}
    )
    assert sums[semconv.METRIC_ERRORS.name] == {"even_0": 20}


def test_more_than_two_thousand_series(promise: Recorder) -> None:
    """Many agents, criteria and invented models: the sums add up beyond the SDK's default of 2,000
    series.
    """
    with metered(criteria=10) as (pipeline, reader):
        for agent in range(25):

            def answer(number: int) -> str:
                annotate(model=f"model-{number}")
                return str(number)

            handler = monitor(pipeline=pipeline, agent=f"agent-{agent}")(answer)
            for number in range(40):
                handler(number)
        assert pipeline.flush(60)
        sums, series = reader.sums(last=True), reader.series
    assert series > 2_000
    assert sums[semconv.METRIC_RESULTS.name].total() == 10 * 1_000 * 0.9
    assert sums[semconv.METRIC_RESPONSES.name].total() == 1_000
    promise("C1", figure=f"{series} series of 25 agents, 10 criteria and 40 models: sums add up")


class Chosen(Sampler):
    """A sampler of the application: this decision for our spans, and everything of its own."""

    def __init__(self, decision: Decision, prefixes: tuple[str, ...]) -> None:
        self._decision, self._prefixes = decision, prefixes

    def should_sample(
        self, parent_context: Any, trace_id: int, name: str, *args: Any, **kwargs: Any
    ) -> SamplingResult:
        return SamplingResult(
            self._decision if name.startswith(self._prefixes) else Decision.RECORD_AND_SAMPLE
        )

    def get_description(self) -> str:
        return "chosen"


@pytest.mark.parametrize(
    "prefixes", [("invoke_agent",), ("evaluation ",), ("invoke_agent", "evaluation ")]
)
@pytest.mark.parametrize("decision", [Decision.DROP, Decision.RECORD_ONLY])
def test_a_sampler_of_the_host_that_drops_our_spans(
    decision: Decision, prefixes: tuple[str, ...]
) -> None:
    """Spans that the host does not want are not written; every answer has its event, in its trace,
    and is counted.
    """
    with closing(HostSdk(sampler=Chosen(decision, prefixes))) as host:
        pipeline = host.pipeline(Func.of(is_even, criterion_name="even"))
        handler = monitor(pipeline=pipeline, agent="agent")(lambda: "2")
        for _ in range(50):
            handler()
        assert pipeline.flush(30)
        assert pipeline.accounting.outcomes()["evaluated"] == 50
        assert pipeline.accounting.failures == {}
        written = {prefix: len(host.spans(prefix)) for prefix in ("invoke_agent", "evaluation ")}
        # Below an agent span that is not sampled there is no run span either.
        dropped = {*prefixes, *(("evaluation ",) if "invoke_agent" in prefixes else ())}
        assert written == {prefix: 0 if prefix in dropped else 50 for prefix in written}
        events = host.events()
        assert len({event.trace_id for event in events if event.trace_id}) == len(events) == 50
        assert {event.attributes[LABEL] for event in events} == {"pass"}


LIMITS = {
    "OTEL_BSP_MAX_QUEUE_SIZE": "64",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "32",
    "OTEL_BSP_SCHEDULE_DELAY": "100",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "8",
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "64",
}


def test_limits_of_the_sdk_from_the_environment(
    promise: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A span queue of 64 and eight attributes a span: every span arrives, the host's too, with what
    matters on it.
    """
    for name, value in LIMITS.items():
        monkeypatch.setenv(name, value)
    evaluators = [
        Func.of(lambda value: True, criterion_name=f"criterion_{number}") for number in range(10)
    ]
    with closing(HostSdk(Keeper(0.02))) as host:
        pipeline = host.pipeline(*evaluators)
        answer = monitor(pipeline=pipeline, agent="agent")(lambda: "an answer")
        for number in range(600):
            answer()
            if number % 30 == 0:
                host.tracer_provider.get_tracer("host").start_span("host").end()
        assert pipeline.flush(60)
        assert pipeline.accounting.outcomes()["evaluated"] == 600
        spans = host.spans("")
    names = Counter(span.name.split()[0] for span in spans)
    assert names == {"invoke_agent": 600, "evaluation": 600, "host": 20}
    assert max(len(span.attributes or {}) for span in spans) == 8
    runs = [span.attributes or {} for span in spans if span.name.startswith("evaluation ")]
    assert all("agenteval.evaluation.overall_score" in attributes for attributes in runs)
    promise(
        "C1", figure="a span queue of 64, eight attributes a span: 1,220 of 1,220 spans arrived"
    )
