"""What is generated for the Collector and its neighbours: what a plan decides, and the structure of what cannot be run.

Collector, Jaeger, Loki and Prometheus are run with these files in tests/backends; Azure, Tempo, Compose and Kubernetes
are held against what their makers document.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from agenteval_otel import semconv
from agenteval_otel.models import EvaluationCriteria
from agenteval_otel.provisioning import MonitoringPlan, PlannedCriterion
from agenteval_otel.provisioning.collector import CONTENT, files_of

COLLECTORS = [
    "otel-collector.yaml",
    "collector/tail-sampling.yaml",
    "collector/gateway.yaml",
    "collector/gateway-agent.yaml",
    "collector/azure-monitor.yaml",
]
# The exporter's own settings, and those that it shares with other exporters.
AZURE = {"connection_string", "endpoint", "maxbatchsize", "maxbatchinterval", "spaneventsenabled", "sending_queue",
         "shutdown_timeout", "custom_events_enabled"}  # fmt: skip
SECONDS = {"s": 1.0, "m": 60.0}


def planned(name: str, **declared: Any) -> PlannedCriterion:
    return PlannedCriterion(criterion=EvaluationCriteria(name=name, **declared))


@pytest.fixture(scope="module", name="plan")
def plan_fixture() -> MonitoringPlan:
    return MonitoringPlan(
        criteria=(planned("tone", objective=0.9), planned("clarity-2.x", scale="numeric", threshold=0.5),
                  planned("length", scale="numeric")),
    )  # fmt: skip


def tree(text: str) -> Any:
    (document,) = yaml.safe_load_all(text)
    return document


def seconds(duration: str) -> float:
    found = re.fullmatch(r"([\d.]+)([ms])", duration)
    assert found, duration
    return float(found[1]) * SECONDS[found[2]]


@pytest.mark.parametrize("name", COLLECTORS)
def test_every_collector_guards_itself_and_content(plan: MonitoringPlan, name: str) -> None:
    """The memory limiter is first everywhere, content goes before anything leaves, every part named is declared."""
    config = tree(files_of(plan)[name])
    pipelines = config["service"]["pipelines"]
    assert set(pipelines) == {"traces", "logs", "metrics"}
    for signal, pipeline in pipelines.items():
        assert pipeline["processors"][0] == "memory_limiter"
        assert pipeline["processors"][-1] == "batch"
        assert ("transform/content" in pipeline["processors"]) == (signal != "metrics")
        assert set(pipeline["processors"]) <= set(config["processors"])
        assert set(pipeline["receivers"]) <= set(config["receivers"])
        exporters = pipeline["exporters"]
        assert set(exporters if isinstance(exporters, list) else default(exporters)) <= set(config["exporters"])
    assert set(config["service"]["extensions"]) == set(config["extensions"])


def default(variable: str) -> list[str]:
    """The list that a variable has when it is not set."""
    found = re.fullmatch(r"\$\{env:[A-Z_]+:-(\[.*\])\}", variable)
    assert found, variable
    names: list[str] = yaml.safe_load(found[1])
    return names


def test_everything_that_leaves_for_a_backend_waits_on_disk(plan: MonitoringPlan) -> None:
    """Every exporter over the network has a bounded queue in the file storage, and tries again."""
    for name in COLLECTORS:
        for kind, exporter in tree(files_of(plan)[name])["exporters"].items():
            if kind in ("debug", "file", "prometheus"):
                continue
            assert exporter["sending_queue"]["storage"] == "file_storage/queue", (name, kind)
            assert exporter["sending_queue"]["queue_size"] > 0


@pytest.mark.parametrize(
    "name",
    [
        semconv.EXPLANATION,
        semconv.USER_PROMPT,
        semconv.FULL_RESPONSE,
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.system_instructions",
        "gen_ai.tool.definitions",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
        "gen_ai.prompt",
        "gen_ai.completion.0.content",
        "input.value",
        "traceloop.entity.output",
    ],
)
def test_content_is_known_by_its_names(plan: MonitoringPlan, name: str) -> None:
    """Attributes that hold texts, of the conventions and of others, are in the patterns, and in every Collector."""
    (pattern,) = [pattern for pattern in CONTENT if re.fullmatch(pattern, name)]
    for collector in COLLECTORS:
        assert files_of(plan)[collector].count(pattern) == 3  # spans, their events, log records


def test_no_name_that_we_emit_is_taken_for_content() -> None:
    """Whatever semconv names, but for the three that hold texts, passes."""
    ours = {value for value in vars(semconv).values() if isinstance(value, str) and "." in value}
    ours |= {semconv.criterion_score("tone"), semconv.criterion_label("content"), "gen_ai.usage.input_tokens"}
    taken = {name for name in ours if any(re.fullmatch(pattern, name) for pattern in CONTENT)}
    assert taken == {semconv.EXPLANATION, semconv.USER_PROMPT, semconv.FULL_RESPONSE}


def test_tail_sampling_knows_the_criteria_that_can_fail(plan: MonitoringPlan) -> None:
    """A policy for each criterion with a verdict, none for one without; then errors, evaluations and a share."""
    policies = tree(files_of(plan)["collector/tail-sampling.yaml"])["processors"]["tail_sampling"]["policies"]
    assert [policy["name"] for policy in policies] == [
        "fails-tone", "fails-clarity-2.x", "errors", "evaluated", "the-rest",
    ]  # fmt: skip
    assert policies[1]["string_attribute"] == {"key": "gen_ai.evaluation.clarity-2.x.label", "values": ["fail"]}


def test_without_criteria_there_is_a_collector_all_the_same() -> None:
    """Settings without a threshold: nothing can fail, and the other policies remain."""
    config = tree(files_of(MonitoringPlan())["collector/gateway.yaml"])
    names = [policy["name"] for policy in config["processors"]["tail_sampling"]["policies"]]
    assert names == ["errors", "evaluated", "the-rest"]


def test_a_decision_waits_for_judges_and_series_for_sparse_results(plan: MonitoringPlan) -> None:
    """Longer where a model is asked; both shrink with the time scale, neither below what still works."""
    judged = plan.model_copy(update={"judge_models": ("m",)})
    decisions, expirations = [], []
    for one in (plan, judged, judged.model_copy(update={"time_scale": 0.5}),
                judged.model_copy(update={"time_scale": 0.0005})):  # fmt: skip
        config = tree(files_of(one)["collector/tail-sampling.yaml"])
        decisions.append(seconds(config["processors"]["tail_sampling"]["decision_wait"]))
        expirations.append(seconds(config["exporters"]["prometheus"]["metric_expiration"]))
    assert decisions == [15.0, 60.0, 30.0, 1.0]
    assert expirations == [3600.0, 3600.0, 1800.0, 300.0]


def test_azure_is_told_in_its_exporter_s_words(plan: MonitoringPlan) -> None:
    """Only settings that the exporter has, its secret from the environment, no other backend beside it."""
    config = tree(files_of(plan)["collector/azure-monitor.yaml"])
    exporter = config["exporters"]["azuremonitor"]
    assert exporter.keys() <= AZURE
    assert exporter["connection_string"] == "${env:APPLICATIONINSIGHTS_CONNECTION_STRING}"
    assert set(config["exporters"]) == {"azuremonitor", "prometheus", "debug"}
    assert all("azuremonitor" in pipeline["exporters"] for pipeline in config["service"]["pipelines"].values())
