"""docs/quick-start.md and the queries of docs/sampling-weights.md, followed with the real
programs.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from agenteval_otel.models.intervals import WeightedSums
from tests.backends.collector import Collector
from tests.backends.fixtures import running
from tests.backends.jaeger import Jaeger
from tests.backends.process import bare_environment
from tests.backends.prometheus import Prometheus, scraping
from tests.docs.generator import DOCS

pytestmark = pytest.mark.backend

CONFIGURATION = DOCS.parent / "collector-config"
QUICK_START = (DOCS / "quick-start.md").read_text()
SAMPLING = (DOCS / "sampling-weights.md").read_text()
ARRIVAL_LIMIT_S = 30.0
UNEVEN = """
    import sys
    from agenteval_otel import EvaluationInput, configure, flush, monitor
    from agenteval_otel.sampling import FunctionSampler
    from agenteval_otel.storage import JsonFileStorageProvider, OtlpStorageProvider

    def is_good(value: EvaluationInput) -> bool:
        return "good" in value.response_text

    configure(
        sampler=FunctionSampler(function=lambda value: 1.0 if "bad" in value.response_text else 0.3),
        evaluators=[is_good], storage=[OtlpStorageProvider(), JsonFileStorageProvider(path=sys.argv[1])],
    )

    @monitor(agent="uneven")
    def answer(number: int) -> str:
        return "a bad answer" if number % 8 == 0 else "no answer" if number % 8 == 1 else "a good answer"

    for number in range(200):
        answer(number)
    assert flush(20.0)
"""


class Followed(NamedTuple):
    """What runs when the reader has come to step 5, and what the application logged in step 3."""

    collector: Collector
    jaeger: Jaeger
    prometheus: Prometheus
    folder: Path
    logged: str


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run(folder: Path, *command: str, **variables: str) -> tuple[str, str]:
    finished = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=bare_environment() | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout, finished.stderr


@pytest.fixture(scope="module")
def followed(
    jaeger: Jaeger,
    collector_binary: Path,
    prometheus_binary: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Followed]:
    """Steps 2 to 4 in an empty folder, with the shipped configurations, and an application that
    samples unevenly.
    """
    folder = tmp_path_factory.mktemp
    shipped = {"COLLECTOR_TRACES_ENDPOINT": jaeger.otlp_endpoint}
    with ExitStack() as stack:
        made = Collector(
            collector_binary,
            folder("collector"),
            config=CONFIGURATION / "otel-collector.yaml",
            environment=shipped,
        )
        collector = stack.enter_context(running(made))
        scrape = scraping(
            CONFIGURATION / "prometheus/prometheus.yml", port=collector.ports.prometheus, every_s=1
        )
        prometheus = stack.enter_context(
            running(Prometheus(prometheus_binary, folder("prometheus"), config=scrape))
        )
        reader = folder("reader")
        (reader / "app.py").write_text("\n".join(blocks(QUICK_START, "python")))
        (message,) = [block for block in blocks(QUICK_START, "console") if "export" in block]
        variables = dict(re.findall(r"^export (\w+)='?(.*?)'?$", message, re.MULTILINE))
        assert variables.keys() == {
            "OTEL_SERVICE_NAME",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "AGENTEVAL_TELEMETRY__SIGNALS",
        }
        alone = variables | {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{jaeger.otlp_endpoint}"}
        printed, logged = run(reader, "app.py", **alone | {"OTEL_SERVICE_NAME": "first-look"})
        assert printed == "{'evaluated': 3}\n"
        del variables["AGENTEVAL_TELEMETRY__SIGNALS"]
        variables["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.grpc_endpoint
        assert run(reader, "app.py", **variables)[0] == "{'evaluated': 3}\n"
        run(
            reader,
            "-c",
            textwrap.dedent(UNEVEN),
            "uneven.jsonl",
            **variables | {"OTEL_SERVICE_NAME": "uneven"},
        )
        for service in ("my-agent", "uneven"):
            prometheus.wait_for(
                lambda seen, job=service: seen.query(f'agenteval_responses_total{{job="{job}"}}'),
                ARRIVAL_LIMIT_S,
            )
        yield Followed(collector, jaeger, prometheus, reader, logged)


def test_jaeger_alone_shows_the_scores_without_a_warning(followed: Followed) -> None:
    """Step 3: traces alone, straight to Jaeger."""
    traces = followed.jaeger.wait_for(lambda seen: seen.traces("first-look"), ARRIVAL_LIMIT_S)
    runs = [span for trace in traces for span in trace.spans if span.name == "evaluation support"]
    labels = [span.tags["gen_ai.evaluation.response_health.label"] for span in runs]
    assert sorted(labels) == ["fail", "pass", "pass"]
    assert followed.logged == ""


def test_the_reader_finds_the_answers_that_are_none(followed: Followed) -> None:
    """The search of step 3 finds the one empty answer, its evaluation below the agent's span."""
    (searched,) = [line for block in blocks(QUICK_START, "text") for line in block.splitlines()]
    name, _, value = searched.partition("=")
    (trace,) = followed.jaeger.wait_for(
        lambda seen: seen.traces("my-agent", tags={name: value}), ARRIVAL_LIMIT_S
    )
    assert sorted(span.name for span in trace.spans) == [
        "evaluation support",
        "invoke_agent support",
    ]
    assert trace.orphans() == []
    assert trace.warnings() == []
    assert len(followed.jaeger.traces("my-agent")) == 3


def test_the_reader_s_queries_answer(followed: Followed) -> None:
    """The queries of step 5 give the share of answers that pass, and what became of the calls."""
    shares, outcomes = blocks(QUICK_START, "promql")
    actual = {
        sample.labels["gen_ai_evaluation_name"]: sample.value
        for sample in followed.prometheus.query(only(shares, "my-agent"))
    }
    assert actual == pytest.approx(
        {"response_health": 2 / 3, "short_enough": 1.0, "gives_next_step": 1 / 3}
    )
    (evaluated,) = followed.prometheus.query(only(outcomes, "my-agent"))
    assert (evaluated.labels["agenteval_outcome"], evaluated.value) == ("evaluated", 3.0)


def test_the_recording_rules_give_mean_and_error(
    followed: Followed, promtool_binary: Path, tmp_path: Path
) -> None:
    """The rules of the sampling page are valid, and their arithmetic is that of the offline
    estimate.
    """
    (text,) = [block for block in blocks(SAMPLING, "yaml") if "record:" in block]
    file = tmp_path / "rules.yaml"
    file.write_text(text)
    subprocess.run([promtool_binary, "check", "rules", file], check=True, capture_output=True)
    rules = {
        rule["record"]: total(rule["expr"]) for rule in yaml.safe_load(text)["groups"][0]["rules"]
    }
    sums = WeightedSums()
    for line in (followed.folder / "uneven.jsonl").read_text().splitlines():
        for result in json.loads(line)["results"]:
            sums.add(result["normalized"], 1.0 / result["probability"])
    estimate = sums.estimate()
    assert estimate is not None
    assert sums.count < 150
    mean = value_of(followed.prometheus, unfolded(rules, "agenteval:mean"))
    assert mean == pytest.approx(estimate.mean)
    error = value_of(followed.prometheus, unfolded(rules, "agenteval:mean_error"))
    variance = (sums.w2y2 - 2 * mean * sums.w2y + mean * mean * sums.w2) / sums.w**2
    assert error == pytest.approx(math.sqrt(variance))
    (query,) = blocks(SAMPLING, "promql")
    assert value_of(followed.prometheus, only(total(query), "uneven")) == pytest.approx(
        estimate.mean
    )


def only(expression: str, service: str) -> str:
    """The expression about one application's series."""
    labelled = re.sub(r"(agenteval_\w+_total)\{", rf'\1{{job="{service}",', expression)
    return re.sub(r"(agenteval_\w+_total)\b(?!\{)", rf'\1{{job="{service}"}}', labelled)


def total(expression: str) -> str:
    """The expression since the application's start: `increase` needs a past that a test has not."""
    made, count = re.subn(r"increase\((.*?)\[1h\]\)", r"\1", expression)
    assert count or "agenteval:" in expression
    return made


def unfolded(rules: dict[str, str], name: str) -> str:
    """A rule's expression with the rules that it uses put in."""
    return re.sub(
        r"agenteval:\w+", lambda used: f"({unfolded(rules, used[0])})", only(rules[name], "uneven")
    )


def value_of(prometheus: Prometheus, expression: str) -> float:
    (sample,) = prometheus.query(expression)
    assert sample.labels["gen_ai_evaluation_name"] == "is_good"
    return sample.value
