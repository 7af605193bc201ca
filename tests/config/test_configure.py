"""Settings, and how the process's pipeline is assembled from them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from agenteval_otel import Settings, accounting, configure, flush, monitor, shutdown
from agenteval_otel.config import build, default_pipeline
from agenteval_otel.config.process import when_configured
from agenteval_otel.engine.pipeline import PoolDispatcher
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import KeywordCoverage, ResponseHealth
from agenteval_otel.runtime.memory import MEMORY
from agenteval_otel.sampling import RateLimitSampler, RatioSampler
from agenteval_otel.storage import EvaluationStorageProvider
from agenteval_otel.telemetry.reference import explanation_of_failure
from tests.pipeline.support import eventually
from tests.testing.doubles import Free, Keeping


def test_the_defaults() -> None:
    """Building starts nothing, and the verbs need no configuration. Bare settings look at the
    health of at most ten answers a second; a rate takes the limit away.
    """
    threads = threading.active_count()
    defaults = build(Settings()).handlers.defaults
    assert threading.active_count() == threads
    assert defaults.evaluators == (ResponseHealth(),)
    assert defaults.sampler == RateLimitSampler(max_per_s=10, ratio=1.0)
    assert build(Settings(sample_rate=0)).handlers.defaults.sampler == RatioSampler(ratio=0.0)
    assert flush(1)
    assert set(accounting().values()) == {0}
    assert shutdown(1)


def test_the_memory_of_what_waits_is_a_setting() -> None:
    """`max_waiting_bytes` bounds all that waits in the process, `export.max_bytes` the encoded
    batches among it.
    """

    def limits() -> tuple[int, int]:
        return MEMORY.max_bytes, MEMORY.encoded_batches.max_bytes

    before = limits()
    try:
        build(Settings(max_waiting_bytes=2**21, export={"max_bytes": 2**20}))
        assert limits() == (2**21, 2**20)
        build(Settings())
        assert limits() == (64 * 2**20, 32 * 2**20)
    finally:
        MEMORY.max_bytes, MEMORY.encoded_batches.max_bytes = before


def test_all_forms_are_taken() -> None:
    """Parts are instances, mappings by type, names and functions."""

    def short(evaluation_input: Any) -> bool:
        return True

    mapping = {"type": "KeywordCoverage", "criterionName": "kw", "expectedKeywords": ["a"]}
    settings: dict[str, Any] = {
        "evaluators": ["ResponseHealth", mapping, short],
        "sampler": {"type": "rate_limit", "maxPerS": 3},
        "storage": [{"type": "console"}],
        "dispatcher": {"type": "inline"},
    }
    made = build(Settings(**settings))
    labels = [evaluator.label for evaluator in made.handlers.defaults.evaluators]
    assert labels == ["ResponseHealth:response_health", "KeywordCoverage:kw", "Func:short"]
    assert made.handlers.defaults.sampler == RateLimitSampler(max_per_s=3)
    assert made.dispatcher.type == "inline"


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({"evaluator": []}, "evaluator", "unknown field (did you mean 'evaluators'?). Known: "),
        ({"sample_rate": 7}, "sample_rate", "found 7"),
        ({"evaluators": []}, "evaluators", "at least one"),
        ({"evaluators": ["Nope"]}, "evaluators[0]", "ResponseHealth"),
        ({"evaluators": [Free(criterion_name="no slug")]}, "evaluators[0]", "must be a slug"),
        ({"sampler": {"type": "nope"}}, "sampler", "rate_limit, ratio"),
        ({"storage": [7]}, "storage[0]", "found int"),
        ({"dispatcher": {"type": "nope"}}, "dispatcher", "inline, pool"),
        ({"agent_span": "often"}, "agent_span", "'never'"),
        (
            {"metric_dimensions": "tenant"},
            "metric_dimensions",
            "expected a list of names, or a mapping",
        ),
        (
            {"metric_dimensions": ["prompt_verison"]},
            "metric_dimensions",
            "no annotation 'prompt_verison' (did you mean 'prompt_version'?). Known: gen_ai.prompt.name, ",
        ),
        (
            {"metric_dimensions": ["user_id"]},
            "metric_dimensions",
            "an id of users makes a series of each",
        ),
        (
            {"metric_dimensions": {"tenant": 500}},
            "metric_dimensions.agenteval.tag.tenant",
            "expected at most 200",
        ),
        ({"metric_dimensions": list("abcde")}, "metric_dimensions", "at most 4"),
        (
            {"aggregation": "minimun"},
            "aggregation",
            "did you mean 'minimum'?). Known: all_must_pass, ",
        ),
        ({"dispatcher": {"type": "pool", "max_items": 0}}, "dispatcher.max_items", "found 0"),
        ({"sampler": RatioSampler(), "sample_rate": 0.5}, "sampler", "not both"),
        (
            {"telemetry": {"headers": {"authorization": "a\nb"}}},
            "telemetry.headers",
            "a name and a value are one line",
        ),
    ],
)
def test_wrong_settings_change_nothing(fields: dict[str, Any], path: str, message: str) -> None:
    """The error has path and choices, and the pipeline from before stays."""
    configure(storage=[Keeping()], dispatcher="inline")
    before = default_pipeline()
    with pytest.raises(ConfigurationError) as caught:
        configure(**fields)
    assert message in str(caught.value)
    assert caught.value.path == path
    assert default_pipeline() is before


def test_settings_or_fields() -> None:
    """`configure` takes Settings or their fields, and gives the settings in force."""
    settings = Settings(storage=(Keeping(),), dispatcher="inline", sample_rate=0.5)
    assert configure(settings) is settings
    assert configure(storage=[Keeping()], dispatcher="inline").sample_rate is None
    with pytest.raises(ConfigurationError, match="not both"):
        configure(settings, sample_rate=0.1)
    with pytest.raises(
        ConfigurationError, match="expected the path of a file, Settings or a mapping, found int"
    ):
        configure(7)  # type: ignore[arg-type]


def test_what_waits_for_configure_and_breaks_is_counted() -> None:
    """`configure` has succeeded, and `explain` knows the part."""

    def prepare(settings: Settings) -> None:
        raise OSError("no room")

    when_configured(prepare)
    assert configure(storage=[]).storage == ()
    assert default_pipeline().accounting.failures == {"instrumentor": 1}
    assert explanation_of_failure("instrumentor") is not None


def test_no_storage_is_an_empty_list() -> None:
    """``storage:`` without a value, as YAML has it, is no storage."""
    assert Settings(storage=None).storage == ()


@pytest.mark.parametrize(
    ("value", "enabled"),
    [("false", False), ("0", False), (" OFF ", False), ("no", False), ("true", True), ("", True)],
)
def test_the_kill_switch_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, value: str, enabled: bool
) -> None:
    """``AGENTEVAL_ENABLED=false`` switches monitoring off; an explicit setting goes first."""
    monkeypatch.setenv("AGENTEVAL_ENABLED", value)
    assert Settings().enabled is enabled
    assert Settings(enabled=True).enabled
    configure(storage=[Keeping()], dispatcher="inline")
    monitor(str.upper)("a")
    assert accounting()["disabled"] == (0 if enabled else 1)


def test_flush_shutdown_and_accounting() -> None:
    """The three verbs work on the configured pipeline: everything taken is evaluated, then nothing
    more is taken.
    """
    kept = Keeping()
    configure(storage=[kept], dispatcher=PoolDispatcher(linger_s=0), sample_rate=1.0)
    handler = monitor(str.upper)
    for _ in range(20):
        handler("a")
    assert flush(20)
    assert len(kept.saved) == 20
    assert shutdown(20)
    handler("a")
    result = accounting()
    assert (result["evaluated"], result["dropped_shutdown"]) == (20, 1)
    assert sum(result.values()) == 21


@pytest.mark.parametrize("name", ["score", "name", "label", "evaluator.id", "user_prompt"])
def test_reserved_criterion_names_are_refused(name: str) -> None:
    """A criterion that would write among the conventions' own attributes is refused at load, with
    reason and list.
    """
    reserved = rf"begin with '{name.partition('.')[0]}'.*of the result itself. Reserved are evaluator, .*prompt"
    with pytest.raises(ConfigurationError, match=reserved):
        Settings(criteria={"default": [{"name": name}]})
    entry = {"type": "KeywordCoverage", "criterion_name": name, "expected_keywords": ["a"]}
    for evaluator in (entry, KeywordCoverage(criterion_name=name, expected_keywords=["a"])):
        with pytest.raises(ConfigurationError, match=reserved):
            configure(evaluators=[evaluator])
        with pytest.raises(ConfigurationError, match=reserved):
            monitor(evaluators=[evaluator])(str.upper)


@pytest.mark.parametrize("again", [True, False], ids=["the same settings", "new settings"])
def test_replaced_pipelines_deliver_what_they_have_taken(again: bool) -> None:
    """Configuring many times loses no call: `flush` waits for all pipelines, outcomes go on, and
    old threads end.
    """
    kept = Keeping()
    before = set(threading.enumerate())

    def settings() -> Settings:
        return Settings(storage=(kept,), dispatcher=PoolDispatcher(linger_s=0.05), sample_rate=1.0)

    same = settings()
    for _ in range(5):
        configure(same if again else settings())
        handler = monitor(str.upper)
        for _ in range(20):
            handler("a")
    configure(storage=[kept], dispatcher=PoolDispatcher(linger_s=0), sample_rate=1.0)
    assert flush(20)
    assert len(kept.saved) == accounting()["evaluated"] == 100
    assert eventually(lambda: set(threading.enumerate()) <= before)


def test_a_provider_that_cannot_save_is_refused() -> None:
    """A provider class without `save_result` is refused at start."""

    class Forgetful(EvaluationStorageProvider):
        async def save(self, aggregated: Any) -> None: ...

    with pytest.raises(
        ConfigurationError, match="Forgetful has no method save_result of its own"
    ) as caught:
        configure(storage=[Forgetful()])
    assert caught.value.path == "storage[0]"
