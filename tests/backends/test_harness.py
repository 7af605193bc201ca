"""The harnesses of the real programs and their builder: what the tests of this folder rely on."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agenteval_otel import semconv

from .build import BUILD_COMMAND, BuildError, build
from .collector import Collector
from .faults import refused_port
from .fixtures import REQUIRE_VARIABLE, require
from .process import BackendError, BackendProcess, Ports
from .prometheus import prometheus_names
from .recipes import PROGRAMS, Program, Step
from .sdk import SCORE, sdk_to, send_one_of_each

WRITES_A_PROGRAM = "import pathlib; pathlib.Path('made').write_text('program')"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENTEVAL_BACKENDS", str(tmp_path))
    return tmp_path


def program(script: str) -> Program:
    step = Step("the tool", (sys.executable, "-c", script))
    return Program(name="tool", version="1.0", executable="made", needs=(sys.executable,), steps=(step,))


def test_a_program_is_built_once(cache: Path) -> None:
    """The second build finds the first one's result; nothing temporary is left."""
    lines: list[str] = []
    made = program(WRITES_A_PROGRAM)
    assert build(made, say=lines.append) == build(made, say=lines.append)
    assert "already built" in lines[-1]
    assert [entry.name for entry in cache.iterdir()] == [made.key]
    assert program("pass").key != made.key, "a stale program is never taken for the present one"


def test_a_failed_build_shows_the_log_and_leaves_nothing(cache: Path) -> None:
    """A failing step ends in one line with the exit code; the log's tail is shown, the log kept, no result left."""
    lines: list[str] = []
    broken = program("print('no such module'); raise SystemExit(3)")
    with pytest.raises(BuildError, match=r"^tool 1\.0, step 1 of 1: the tool failed: exit code 3; whole log: \S+$"):
        build(broken, say=lines.append)
    assert "no such module" in lines[-1]
    assert [entry.name for entry in cache.iterdir()] == [f"{broken.key}.failed.log"]


def test_a_missing_program_skips_or_fails_with_the_command(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests skip with the one command, and fail where the environment requires every backend."""
    monkeypatch.delenv(REQUIRE_VARIABLE, raising=False)
    with pytest.raises(pytest.skip.Exception, match=re.escape(BUILD_COMMAND)):
        require("collector")
    monkeypatch.setenv(REQUIRE_VARIABLE, "1")
    with pytest.raises(pytest.fail.Exception, match=re.escape(BUILD_COMMAND)):
        require("collector")


def test_the_manifest_is_of_one_version() -> None:
    """Every component of the Collector's manifest has the version that the cache key names."""
    (collector,) = (entry for entry in PROGRAMS if entry.name == "collector")
    text = collector.recipe.read_text()
    versions = re.findall(r"^  - gomod: \S+ v(\S+)$", text, re.MULTILINE)
    assert len(versions) == text.count("gomod:")
    assert {*versions, *re.findall(r"^  version: (\S+)$", text, re.MULTILINE)} == {collector.version}


SERVER = """
import http.server, sys

try:
    server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler)
except OSError:
    raise SystemExit("listen: address already in use")
server.serve_forever()
"""


@dataclass(frozen=True)
class PagePorts(Ports):
    web: int


class Page(BackendProcess):
    """A small web server that stands in for a built program."""

    title = "the page"
    ports_type = PagePorts
    script = SERVER

    def _arguments(self) -> list[str]:
        return ["-c", self.script, str(self.ports.web)]

    def _health(self) -> tuple[int, str]:
        return self.ports.web, "/"


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    made = Page(Path(sys.executable), tmp_path)
    yield made
    made.stop()


def test_another_port_is_tried_when_one_was_snatched(page: Page) -> None:
    """A port that is taken in the meantime costs one try and no test; later the program comes back on its port."""
    with refused_port() as taken:
        page.ports = PagePorts(taken)
        port = page.start().ports.web
        assert port != taken
    page.stop()
    with pytest.raises(BackendError, match="the page is not running"):
        page.wait_for(lambda seen: None)
    assert page.start().ports.web == port


def test_a_program_that_ends_is_reported_with_its_log(page: Page) -> None:
    """A program that ends while it starts leaves a message with the end of its log, and no process."""
    page.script = "raise SystemExit('no such option')"
    with pytest.raises(BackendError, match=r"(?s)the page ended while starting; end of its log:.*no such option"):
        page.start()
    assert not page.running


@pytest.mark.backend
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_the_collector_shows_what_it_received(collector: Collector, protocol: str) -> None:
    """A span, an event and a histogram are read back with ids, times, types, bounds and an exemplar."""
    service, when_ns = f"one-of-each-{protocol}", time.time_ns()
    with sdk_to(collector, service=service, protocol=protocol) as sdk:
        sent = send_one_of_each(sdk, when_ns=when_ns)
    (span,) = collector.wait_for(lambda seen: seen.spans(service))
    assert (span.trace_id, span.span_id, span.parent_span_id) == (sent.trace_id, sent.span_id, "")
    assert span.name == "invoke_agent shop"
    assert span.attributes == {"answer.tokens": 42, "answer.tools": ["search", "pay"]}
    (event,) = collector.wait_for(lambda seen: seen.logs(service))
    assert (event.event_name, event.time_unix_nano) == ("gen_ai.evaluation.result", when_ns)
    assert (event.trace_id, event.span_id) == (sent.trace_id, sent.span_id)
    metric = collector.wait_for(lambda seen: seen.metric("gen_ai.evaluation.score", service))
    point = metric.point({"gen_ai.evaluation.name": "relevance"})
    assert (metric.unit, point.count, point.bounds) == ("1", 1, (0.0, 0.5, 1.0))
    assert [(exemplar.value, exemplar.span_id) for exemplar in point.exemplars] == [(SCORE, sent.span_id)]


@pytest.mark.backend
def test_a_stopped_collector_keeps_its_past_and_can_return(own_collector: Collector) -> None:
    """After an outage the Collector is back on its ports, and what came before and after is all there."""
    for service in ("before", "after"):
        with sdk_to(own_collector, service=service) as sdk:
            send_one_of_each(sdk)
        own_collector.wait_for(lambda seen, service=service: seen.spans(service))
        own_collector.stop()
        own_collector.start()
    assert len(own_collector.spans("before")) == len(own_collector.spans("after")) == 1


def test_semconv_knows_the_names_of_prometheus() -> None:
    """What semconv says an instrument is called in Prometheus is what the documented rules make of it."""
    for instrument in semconv.INSTRUMENTS:
        suffix = "_bucket" if instrument.kind == "histogram" else ""
        name, *_ = prometheus_names(instrument.name, instrument.unit, instrument.kind)
        assert name == instrument.prometheus_name + suffix
