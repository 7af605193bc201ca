"""The tables of names and attributes, from which the reference is written, against what is really
emitted.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv import attributes as stable
from opentelemetry.semconv._incubating import attributes as incubating

from agenteval_otel import Score, monitor, semconv
from agenteval_otel.capture.spans.forwarded import attributes_of
from agenteval_otel.errors import JudgeError
from agenteval_otel.evaluators import Func, KeywordCoverage, LLMJudge, ResponseHealth
from agenteval_otel.judges import Judge, JudgeRequest, JudgeUsage, Verdict
from agenteval_otel.models import EvaluationInput
from agenteval_otel.models.scoring.probability import Sampled
from agenteval_otel.semconv import (
    INSTRUMENTS,
    METRIC_WEIGHT,
    TAG,
    criterion_label,
    criterion_score,
)
from agenteval_otel.storage import OtlpStorageProvider
from agenteval_otel.telemetry import reference
from agenteval_otel.testing import RecordedTelemetry
from tests.backends.prometheus import prometheus_names
from tests.docs.generator import load_script
from tests.promises.bench import pipeline_of
from tests.telemetry.support import Watch

ATTRIBUTES = load_script("generate").ATTRIBUTES


FACTS: dict[str, Any] = {
    "model": "m",
    "conversation_id": "c",
    "response_id": "r",
    "prompt_name": "p",
    "prompt_version": "1",
    "user_id": "u",
    "environment": "test",
    "experiment": "x",
    "arm": "new",
    "tags": {"tenant": "acme"},
}
"""What a call can be annotated with."""


async def mood(_: EvaluationInput) -> Score:
    return Score(value="calm", label="calm", reasoning="no exclamation mark", reason_code="calm")


def breaks(evaluation_input: EvaluationInput) -> bool:
    raise KeyError("no")


class Paid(Judge):
    """Says yes to what is whole and fails on the rest; every kind of token is used."""

    model: str = "paid-1"

    async def judge(self, request: JudgeRequest) -> Verdict:
        usage = JudgeUsage(
            input_tokens=9, output_tokens=2, cache_read_tokens=3, cache_write_tokens=4
        )
        if "half" in request.prompt:
            raise JudgeError("no", error_type="truncated", usage=usage)
        answer = {"evidence": [], "reason": "whole", "score": True}
        return Verdict(answer=answer, usage=usage, model=self.model, response_id="msg_1")


@pytest.fixture
def watch(telemetry: RecordedTelemetry) -> Iterator[Watch]:
    """Answers of all kinds into recorded telemetry: scored, a category of a model, failed; in a
    trace and outside.
    """
    made = Watch(telemetry, content="span_and_event", detail="result")
    evaluators = (
        ResponseHealth(objective=0.9),
        KeywordCoverage(criterion_name="words", expected_keywords=["answer"], threshold=0.5),
        Func.of(mood),
        Func.of(breaks),
        LLMJudge(
            criterion_name="judged",
            judge=Paid(
                breaker={},
                cache={},
                spend={"prices": {"paid-1": {"input": 1, "output": 2}}, "usd_per_day": 1},
            ),
        ),
    )
    made.answer(*evaluators, facts=FACTS | {"ground_truth": "An answer."})
    made.answer(*evaluators, traced=False, facts={"ground_truth": "An answer."})
    made.answer(*evaluators, answer="Only half an", traced=False)
    made.answer(*evaluators, answer="", traced=False)
    made.answer(*evaluators, error=ValueError("no"), traced=False)
    made.answer(ResponseHealth(shadow=True), *evaluators, traced=False)
    pipeline = made.pipelines[-1]
    for answer in ({"items": ["soup"]}, threading.Lock()):
        monitor(agent="support", pipeline=pipeline)(lambda given: given)(answer)
    yield made
    made.shutdown()


def there(carrier: str, when: str | None = None) -> set[str]:
    return {
        item.name
        for item in ATTRIBUTES
        if getattr(item, carrier) and when in (None, getattr(item, carrier))
    }


def generic(names: Any) -> set[str]:
    """Attribute names with the criterion's name replaced by its placeholder."""
    criteria = ("response_health", "response_health.shadow", "words", "mood", "breaks", "judged")
    known = {
        form(item): form("<criterion>")
        for form in (criterion_score, criterion_label)
        for item in criteria
    }
    known[f"{TAG}tenant"] = f"{TAG}<key>"
    return {known.get(name, name) for name in names}


def test_events_and_run_spans_have_the_attributes_of_the_table(watch: Watch) -> None:
    """They have no attribute that the table does not know, and all that are always there; so have
    results' spans.
    """
    events = [set(event.attributes) for event in watch.telemetry.events()]
    assert len(events) >= 12
    spans = [
        span for span in watch.telemetry.spans("evaluation ") if not span.name.endswith(" support")
    ]
    assert len(spans) == len(events)
    runs = [generic(span.attributes or {}) for span in watch.telemetry.spans("evaluation support")]
    assert len(runs) == 7
    of_results = [generic(names) for names in (*events, *(span.attributes or {} for span in spans))]
    for carrier, seen in (("event", of_results), ("run_span", runs)):
        for attributes in seen:
            assert there(carrier, "always") <= attributes <= there(carrier)
        # Not met here: a stream, an injection, a long text, a handler that repeats within a trace,
        # a conversation, another service, a trace in part, a late result, a replay, a test suite, a distrusted
        # judge or one whose provider names its configuration.
        unseen = there(carrier) - set().union(*seen)
        unmet = "stream|injection|left_out|clustered|agenteval.conversation|service|replayed|late|untrusted|fingerprint"
        unmet += "|test|incomplete"
        assert {name for name in unseen if not re.search(unmet, name)} == set()


def test_the_event_for_the_sidecar_has_the_attributes_of_the_table() -> None:
    """Those that are always there of an empty input, and all of them of one that says everything."""
    sampled = Sampled(0.5, "ratio", 1)
    full = EvaluationInput.model_validate(
        FACTS
        | {
            "prompt": "Q?",
            "response": "A.",
            "agent": "a",
            "agent_id": "a",
            "finish_reason": "stop",
            "error_type": "KeyError",
            "stream_end": "error",
            "response_form": "json",
            "agent_config": {"tools": [{"name": "t"}]},
            "usage": {
                "input_tokens": 1,
                "output_tokens": 1,
                "cache_read_tokens": 1,
                "cache_write_tokens": 1,
            },
        }
    )
    assert generic(attributes_of(full, sampled, "0123456789abcdef")) == there("forwarded")
    assert there("forwarded", "always") - {"gen_ai.agent.name"} == generic(
        attributes_of(EvaluationInput(), sampled, "0123456789abcdef")
    )


def test_evaluated_spans_have_the_attributes_of_the_table(watch: Watch) -> None:
    """A host's span gets what is known before it ends; the agent span also the agent's name and
    what was raised.

    Where that ends on the background thread, which recorded telemetry does not allow, it has the
    results as well, as a run span would.
    """
    (host,) = watch.telemetry.spans("host work")
    assert set(host.attributes or {}) == there("evaluated_span", "decided before it ends")
    ended = [set(span.attributes or {}) for span in watch.telemetry.spans("invoke_agent support")]
    assert set().union(*ended) == there("evaluated_span")
    with_results = generic(_ended_on_the_background_thread())
    assert there("run_span", "always") <= with_results
    assert with_results <= there("run_span") | there("evaluated_span")


def _ended_on_the_background_thread() -> dict[str, Any]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    pipeline = pipeline_of(storage=(OtlpStorageProvider(tracer_provider=provider),))
    monitor(agent="support", pipeline=pipeline)(str.upper)("an answer.")
    pipeline.flush(30.0)
    pipeline.shutdown(5.0)
    provider.shutdown()
    (own,) = (span for span in exporter.get_finished_spans() if span.name == "invoke_agent support")
    return dict(own.attributes or {})


def test_metrics_have_the_attributes_of_the_table(watch: Watch) -> None:
    """Every instrument of the table is emitted, with no attribute that the table does not know; and
    no other is.
    """
    # No event loop of a host's is met here, no span of another library, no evaluator of
    # conversations, no request for an evaluation, no answer that escalation prefers
    # (tests/engine/test_escalation_live.py has one), no conversation of several turns
    # (tests/telemetry/test_metrics.py), and no judge is compared with anything (tests/judge_health).
    unmet = (
        r"loop.lag|spans$|conversations|evaluate.requests|preferred|evaluation.unit"
        r"|judge.(agreement|checks|drift|length_correlation|untrusted)"
    )
    emitted = [item for item in INSTRUMENTS if not re.search(unmet, item.name)]
    assert watch.telemetry.metrics() == {item.name for item in emitted}
    for item in emitted:
        points = watch.telemetry.points(item.name)
        assert points, item.name
        assert set().union(*(set(point.attributes) for point in points)) == set(item.attributes), (
            item.name
        )


def test_names_in_prometheus() -> None:
    """The names that the table gives for Prometheus are those of the documented rules of
    translation.
    """
    for item in INSTRUMENTS:
        result = prometheus_names(item.name, item.unit, item.kind)  # type: ignore[arg-type]
        suffix = "_bucket" if item.kind == "histogram" else ""
        assert result[0] == item.prometheus_name + suffix
    assert METRIC_WEIGHT.prometheus_name == "agenteval_evaluation_weight_total"


def test_the_data_files_name_what_semconv_names() -> None:
    """No attribute, outcome or reason of `semconv` is missing or left over, and each attribute is
    on some carrier.
    """
    values = {
        name: value
        for name, value in vars(semconv).items()
        if isinstance(value, str) and name.isupper()
    }
    form = re.compile(r"(gen_ai|agenteval|error|user|deployment|service|test)(\.\w+)+")
    attributes = {
        value
        for name, value in values.items()
        if form.fullmatch(value) and not name.startswith("EVENT_")
    }
    names = [item.name for item in ATTRIBUTES]
    assert sorted(name for name in names if "<" not in name) == sorted(attributes)
    on_metrics = {name for item in INSTRUMENTS for name in item.attributes}
    carried = {
        name
        for item in ("event", "crossing", "forwarded", "run_span", "evaluated_span", "suite_span")
        for name in there(item)
    }
    assert set(names) - carried <= on_metrics <= set(names)
    assert set(reference.OUTCOMES) == set(semconv.OUTCOMES)
    assert set(reference.LOST_REASONS) == set(semconv.LOST_REASONS)


MERGED_SINCE = {"gen_ai.prompt.version", "gen_ai.usage.cache_write.input_tokens"}


"""Names that the repository of the GenAI conventions has, and the installed registry does not."""


def test_names_that_are_not_ours_are_in_the_registry_of_the_conventions() -> None:
    """What is emitted under another prefix than ours is a name of the conventions, or is marked as
    an extension.
    """
    registry: set[str] = set(MERGED_SINCE)
    for package in (stable, incubating):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            values = vars(importlib.import_module(module.name)).values()
            registry.update(value for value in values if isinstance(value, str))
    foreign = {item.name for item in ATTRIBUTES if not item.name.startswith("agenteval.")}
    extensions = {item.name for item in ATTRIBUTES if item.extension}
    assert foreign - registry == extensions
