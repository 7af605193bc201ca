"""The Prometheus harness: names, refused configurations and refused questions."""

from __future__ import annotations

from pathlib import Path

import pytest

from agenteval_otel import semconv

from .fixtures import running
from .process import BackendError
from .prometheus import Prometheus, prometheus_names


@pytest.mark.parametrize(
    ("name", "unit", "kind", "found"),
    [
        ("agenteval.evaluation.results", "{result}", "counter", ["agenteval_evaluation_results_total"]),
        ("agenteval.evaluation.weight", "1", "counter", ["agenteval_evaluation_weight_total"]),
        ("agenteval.judge.cost", "{USD}", "counter", ["agenteval_judge_cost_total"]),
        ("agenteval.last_success", "s", "gauge", ["agenteval_last_success_seconds"]),
        ("agenteval.sampling.level", "{level}", "gauge", ["agenteval_sampling_level"]),
        ("some.share", "1", "gauge", ["some_share_ratio"]),
        ("agenteval.queue.bytes", "By", "up_down_counter", ["agenteval_queue_bytes"]),
        ("agenteval.evaluation.lag", "s", "histogram",
         [f"agenteval_evaluation_lag_seconds_{part}" for part in ("bucket", "sum", "count")]),
    ],
)  # fmt: skip
def test_names_are_translated(name: str, unit: str, kind: str, found: list[str]) -> None:
    """The documented rules: units spelled out once, braces without a trace, `total`, `ratio`, three of a histogram."""
    assert list(prometheus_names(name, unit, kind)) == found


def test_semconv_knows_the_names() -> None:
    """What semconv says an instrument is called in Prometheus is what the rules make of it."""
    for instrument in semconv.INSTRUMENTS:
        suffix = "_bucket" if instrument.kind == "histogram" else ""
        name, *_ = prometheus_names(instrument.name, instrument.unit, instrument.kind)
        assert name == instrument.prometheus_name + suffix


@pytest.mark.backend
def test_a_broken_configuration_fails_with_the_log(prometheus_binary: Path, tmp_path: Path) -> None:
    """A configuration that Prometheus refuses is reported in its own words."""
    broken = Prometheus(prometheus_binary, tmp_path, config={"nobody": {}})
    with pytest.raises(BackendError, match=r"(?s)Prometheus ended while starting.*nobody"):
        broken.start()


@pytest.mark.backend
def test_a_wrong_expression_is_refused_in_its_words(prometheus_binary: Path, tmp_path: Path) -> None:
    """A question that is no PromQL gives Prometheus' own explanation; a right one its answer."""
    with running(Prometheus(prometheus_binary, tmp_path)) as prometheus:
        assert [sample.value for sample in prometheus.query("vector(4) / 2")] == [2.0]
        with pytest.raises(BackendError, match="parse error"):
            prometheus.query("sum by (")
