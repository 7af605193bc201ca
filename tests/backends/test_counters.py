"""What Prometheus counts of the verdicts that processes recorded: over both ways, with both
temporalities, over restarts, of short-lived processes and of late results.

`uv run pytest -q -s tests/backends/test_counters.py` prints the table of
docs/prometheus-counts.md. Export and scrape intervals are those of production.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import Popen
from typing import Any, NamedTuple

import pytest
import yaml

from agenteval_otel.provisioning import promql
from agenteval_otel.semconv import METRIC_OBJECTIVE_BREACH, METRIC_RESULTS

from .collector import Collector
from .fixtures import running
from .programs import finish, started, wait_for_what_was_sent
from .prometheus import Prometheus, scraping
from .provisioned import NOWHERE, provision
from .sdk import SHIPPED

pytestmark = [pytest.mark.backend, pytest.mark.live, pytest.mark.timeout(580)]

WINDOW = "30m"
PER_SECOND = 5
SCRAPE_S = 5
LIFETIMES_S = (3, 5, 8, 11, 14, 17, 20, 25, 30, 40)
"""Of the short-lived processes, from their first answer to their last."""
LONG_S, REFUSED_S, RESTARTED_S = 60, 15, (20, 10)
LATE_ANSWERS = 400
RULE = {"criterion": "price_named", "type": "includes", "keywords": ["EUR"]}
EVALUATOR = {"type": "RuleBased", "rules": [RULE]}
SETTINGS: dict[str, Any] = {
    "evaluators": [EVALUATOR],
    "criteria": {"default": [{"name": "price_named", "objective": 0.95}]},
    "sample_rate": 1.0,
    "load_shedding": {"enabled": False},
}
PASS_RATE = 0.8
EVERY_5_S = {"OTEL_METRIC_EXPORT_INTERVAL": "5000"}
DELTA = {"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta"}


class Way(NamedTuple):
    """How the metrics of a process come to Prometheus.

    Attributes:
        environment: Variables of the process. By default it exports every minute.
        direct: Whether they are sent to Prometheus itself, over OTLP.
        exporter: Of the application's own meter provider, ``grpc`` or ``http``. Empty without one.
    """

    environment: Mapping[str, str] = {}
    direct: bool = False
    exporter: str = ""


LONG = {
    "through the Collector": Way(EVERY_5_S),
    "through the Collector, every minute": Way(),
    "through the Collector, delta": Way({**EVERY_5_S, **DELTA}),
    "to Prometheus": Way(EVERY_5_S, direct=True),
    "provider of the application": Way(EVERY_5_S, exporter="grpc"),
    "the same, delta": Way({**EVERY_5_S, **DELTA}, exporter="grpc"),
}
ONE = {**EVERY_5_S, "OTEL_RESOURCE_ATTRIBUTES": "service.instance.id=one"}
RESTARTED = {
    "restarted, through the Collector": Way(ONE),
    "restarted, to Prometheus": Way(ONE, direct=True),
}
SHORT_LIVED = {
    "short-lived, through the Collector": Way(),
    "short-lived, to Prometheus": Way(direct=True),
}
DELTA_TO_PROMETHEUS = "delta, to Prometheus"
REFUSED = Way({**EVERY_5_S, **DELTA}, direct=True, exporter="http")
COUNTED = (*LONG, *RESTARTED, *SHORT_LIVED)
MOST_LOST = 0.5  # a busy machine exports late
"""The share of the verdicts that is in the first samples of counters."""
FROM_THE_START = (
    *(name for name, way in (LONG | SHORT_LIVED).items() if not way.direct),
    "late",
)
ALERT_LIMIT_S = 60.0
ROUNDING = 1e-6
FROM_START = "exemplar-storage,created-timestamp-zero-ingestion"
BREACHED = "AgentevalObjectiveBreached"


class Stack:
    """A shipped Collector and a Prometheus with the generated rules, and services that send to
    them.

    `from_start` is another Prometheus of the same Collector. It counts from the start of counters.
    """

    def __init__(
        self, folder: Path, collector: Collector, prometheus: Prometheus, from_start: Prometheus
    ) -> None:
        self.collector = collector
        self.prometheus = prometheus
        self.from_start = from_start
        self.folder = folder
        self._settings = 0

    def service(
        self,
        name: str,
        answers: int,
        seconds: float,
        way: Way,
        *,
        then_s: float = 0,
        more: Mapping[str, Any] = {},
    ) -> Popen[str]:
        """Start a process that answers, and that ends `then_s` seconds after its last result."""
        endpoint, protocol = self.collector.grpc_endpoint, "grpc"
        if way.direct:
            endpoint = self.prometheus.otlp_metrics_endpoint.removesuffix("/v1/metrics")
            protocol = "http/protobuf"
        telemetry = {"endpoint": endpoint, "protocol": protocol, "signals": ["metrics"]}
        self._settings += 1
        file = self.folder / f"{self._settings}.yaml"
        file.write_text(yaml.safe_dump({**SETTINGS, **more, "telemetry": telemetry}))
        program = ("-m", "tests.backends.applications", "counted", str(file))
        return started(
            *program,
            *map(str, (answers, seconds, then_s, way.exporter)),
            OTEL_SERVICE_NAME=name,
            OTEL_EXPORTER_OTLP_ENDPOINT=endpoint,
            **way.environment,
        )

    def counts(
        self, prometheus: Prometheus, outputs: Mapping[str, Sequence[str]]
    ) -> dict[str, Count]:
        """Wait for all that was sent, and print and return what Prometheus has of each service."""
        wait_for_what_was_sent(self.collector, prometheus)
        print("\n\n| service | evaluated | grown | recorded | share | pass rate | conversations |")
        counts = {}
        for name, printed in outputs.items():
            counts[name] = self.count(prometheus, name, printed)
            print(counts[name].row(name))
        return counts

    def count(self, prometheus: Prometheus, name: str, outputs: Sequence[str]) -> Count:
        """Return what Prometheus has of a service, and what its processes printed."""
        job = f'job="{name}"'
        truth = [json.loads(output.splitlines()[0]) for output in outputs]
        selector = f"{METRIC_RESULTS.prometheus_name}{{{job}}}"
        series = prometheus.samples(selector, WINDOW)

        at = time.time()  # one moment for all: how far `increase` extrapolates depends on it

        def value(word: str) -> float | None:
            found = prometheus.query(expression(word, job), at=at)
            return found[0].value if found else None

        return Count(
            evaluated=sum(each["passed"] + each["failed"] for each in truth),
            grown=sum(map(growth, series)),
            most=sum(growth(values) * most_extrapolation(values) for values in series),
            counted=value("answers") or 0.0,
            weighed=(value("passed") or 0.0) + (value("failed") or 0.0),
            rate=value("pass_rate"),
            units=value("units") or 0.0,
        )


def expression(word: str, matchers: str) -> str:
    """Return the query of a recorded word, with those that it is computed from written out."""
    if word == "answers":
        return promql.verdict_count(matchers, WINDOW)
    if word in promql.SUMS:
        return f"({promql.sum_of(word, matchers, WINDOW)})"
    computed = promql.estimates("<{}>".format)[word]
    return re.sub(r"<(\w+)>", lambda found: expression(found[1], matchers), computed)


class Count(NamedTuple):
    """The verdicts of a service.

    Attributes:
        evaluated: How many its processes made.
        grown: By how much the stored counters grew, by their samples alone.
        most: The same with as much extrapolation as `increase` may add.
        counted: The recorded count.
        weighed: The recorded sum of weights. Each weight is 1.
        rate: The recorded pass rate. None without any verdict.
        units: The recorded number of conversations.
    """

    evaluated: int
    grown: float
    most: float
    counted: float
    weighed: float
    rate: float | None
    units: float

    @property
    def lost(self) -> float:
        """The share of the verdicts by which no counter grew."""
        return 1 - self.grown / self.evaluated

    def row(self, name: str) -> str:
        rate = "none" if self.rate is None else f"{100 * self.rate:.2f} %"
        return (
            f"| {name} | {self.evaluated} | {self.grown:.0f} | {self.counted:.1f} "
            f"| {100 * self.counted / self.evaluated:.0f} % | {rate} | {self.units:.1f} |"
        )


def growth(values: Sequence[float]) -> float:
    """Return by how much a counter grew. After a fall it began again at 0."""
    grown = 0.0
    for before, after in itertools.pairwise(values):
        grown += after - before if after >= before else after
    return grown


def most_extrapolation(values: Sequence[float]) -> float:
    """Return the most that `increase` multiplies a growth with.

    It adds up to 1.1 of the average distance of the samples at each end of the window.
    """
    return 1 + 2.2 / max(1, len(values) - 1)


@contextmanager
def running_stack(folder: Path, collector_binary: Path, prometheus_binary: Path) -> Iterator[Stack]:
    """The shipped Collector and Prometheus, with the rules of these settings."""
    rules = provision(folder, SETTINGS) / "prometheus/rules"
    made = Collector(collector_binary, folder / "collector", config=SHIPPED, environment=NOWHERE)
    with running(made) as collector:
        shipped = SHIPPED.parent / "prometheus/prometheus.yml"
        port = collector.ports.prometheus
        config = scraping(shipped, port=port, every_s=SCRAPE_S, rules=rules)
        server = Prometheus(prometheus_binary, folder / "data", config=config)
        other = Prometheus(
            prometheus_binary,
            folder / "from_start",
            config=scraping(shipped, port=port, every_s=SCRAPE_S),
            features=FROM_START,
        )
        with running(server) as prometheus, running(other) as from_start:
            yield Stack(folder, collector, prometheus, from_start)


class Late(NamedTuple):
    """Results of answers that waited for their window, when it opened and when all had ended."""

    total: Count
    before: float
    state_before: float
    alerted_before: bool
    state_after: float
    alerted_after: bool


class Measured(NamedTuple):
    """By service: what Prometheus counts, and what it counts from the start of counters."""

    counts: Mapping[str, Count]
    from_start: Mapping[str, Count]
    late: Late


@pytest.fixture(scope="module", name="measured")
def measured_fixture(
    collector_binary: Path, prometheus_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Measured]:
    """All services have ended, and Prometheus has what they sent."""
    folder = tmp_path_factory.mktemp("counters")
    with running_stack(folder, collector_binary, prometheus_binary) as stack:
        yield measure(stack)


def measure(stack: Stack) -> Measured:
    """Run all services, and print the table."""
    opens_at = (datetime.now(UTC) + timedelta(seconds=100)).replace(second=0, microsecond=0)
    late = stack.service(
        "late",
        LATE_ANSWERS,
        LATE_ANSWERS / 20,
        Way(EVERY_5_S),
        then_s=2 * SCRAPE_S,
        more=off_peak_from(opens_at, stack.folder / "off-peak.db"),
    )
    refused = stack.service(DELTA_TO_PROMETHEUS, PER_SECOND * REFUSED_S, REFUSED_S, REFUSED)
    long = {
        name: stack.service(name, PER_SECOND * LONG_S, LONG_S, way) for name, way in LONG.items()
    }
    outputs = restarted(stack)
    for name, process in long.items():
        outputs[name] = finish(process)
    short = {
        name: [stack.service(name, PER_SECOND * each_s, each_s, way) for each_s in LIFETIMES_S]
        for name, way in SHORT_LIVED.items()
    }
    for name, processes in short.items():
        outputs[name] = finish(*processes)
    outputs[DELTA_TO_PROMETHEUS] = finish(refused)
    outputs["late"] = finish(late)
    counts = stack.counts(stack.prometheus, outputs)
    from_start = stack.counts(stack.from_start, outputs)
    return Measured(counts, from_start, late_of(stack, counts["late"], opens_at))


def restarted(stack: Stack) -> dict[str, list[str]]:
    """Run two processes of each service, one after the other, with the same instance id."""
    outputs: dict[str, list[str]] = {name: [] for name in RESTARTED}
    for seconds in RESTARTED_S:
        processes = [
            stack.service(name, PER_SECOND * seconds, seconds, way)
            for name, way in RESTARTED.items()
        ]
        for name, output in zip(RESTARTED, finish(*processes), strict=True):
            outputs[name].append(output)
    return outputs


def off_peak_from(opens_at: datetime, path: Path) -> dict[str, Any]:
    closes_at = opens_at + timedelta(hours=1)
    window = {"from": f"{opens_at:%H:%M}", "to": f"{closes_at:%H:%M}", "path": str(path)}
    return {"evaluators": [{**EVALUATOR, "schedule": "off_peak"}], "off_peak": window}


def late_of(stack: Stack, count: Count, opens_at: datetime) -> Late:
    """Look at the late results when their window opens, and now."""
    prometheus, job = stack.prometheus, 'job="late"'
    alert = f'ALERTS{{alertname="{BREACHED}", alertstate="firing", {job}}}'
    state = f"max({METRIC_OBJECTIVE_BREACH.prometheus_name}{{{job}}})"
    at = opens_at.timestamp()

    def value(query: str, at: float | None = None) -> float:
        found = prometheus.query(query, at=at)
        return found[0].value if found else 0.0

    prometheus.wait_for(lambda seen: seen.query(alert), ALERT_LIMIT_S)
    late = Late(
        total=count,
        before=value(f"sum({METRIC_RESULTS.prometheus_name}{{{job}}})", at),
        state_before=value(state, at),
        alerted_before=bool(prometheus.query(alert, at=at)),
        state_after=value(state),
        alerted_after=bool(prometheus.query(alert)),
    )
    print(late)
    return late


@pytest.mark.parametrize("name", COUNTED)
def test_prometheus_counts_what_was_evaluated(measured: Measured, name: str) -> None:
    """Counters grow by it but for their first samples. The recorded count is that growth with
    extrapolation, and the recorded pass rate is the true one: both verdicts have lost and gained
    alike.
    """
    count = measured.counts[name]
    assert count.evaluated > 0
    assert 0 <= count.lost <= MOST_LOST
    assert count.grown <= count.counted + ROUNDING
    assert count.counted <= count.most + ROUNDING
    assert count.rate == pytest.approx(PASS_RATE, abs=0.03)
    # An export may read one of the two counters before an answer, and the other behind it.
    assert count.weighed == pytest.approx(count.counted, rel=0.005)


@pytest.mark.parametrize("name", FROM_THE_START)
def test_next_to_nothing_is_lost_where_counters_are_counted_from_their_start(
    measured: Measured, name: str
) -> None:
    """With Prometheus's feature `created-timestamp-zero-ingestion`: what was scraped counts whole."""
    count = measured.from_start[name]
    assert 0.95 * count.evaluated <= count.grown <= count.evaluated


def test_prometheus_takes_no_delta(measured: Measured) -> None:
    """The application's own provider with delta temporality, past the Collector."""
    count = measured.counts[DELTA_TO_PROMETHEUS]
    assert count.evaluated == PER_SECOND * REFUSED_S
    assert (count.grown, count.rate) == (0, None)


def test_late_results_count_when_they_are_evaluated(measured: Measured) -> None:
    """Nothing before their window opens; then the detector's state and its page."""
    late = measured.late
    assert late.total.evaluated == LATE_ANSWERS
    assert (late.before, late.state_before, late.alerted_before) == (0, 0, False)
    assert (late.state_after, late.alerted_after) == (1, True)
