"""A run of ``evaluate --telemetry`` in a real Jaeger: one trace, whose failed cases are found by
their status.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agenteval_otel import semconv

from .jaeger import Jaeger
from .process import bare_environment
from .programs import ROOT

pytestmark = pytest.mark.backend

LIMIT_S = 60.0
SERVICE = "agenteval-evaluate"
ROWS = "response\nOn Tuesday.\n\"I'm sorry, but I can't help with that.\"\n"


def test_failed_cases_are_found_in_jaeger(jaeger: Jaeger, tmp_path: Path) -> None:
    """The trace is complete and without orphans; the case that fails is found by its tag."""
    (tmp_path / "answers.csv").write_text(ROWS)
    environment = bare_environment(
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{jaeger.otlp_endpoint}", PYTHONPATH=str(ROOT)
    )
    command = [sys.executable, "-m", "agenteval_otel", "evaluate", "answers.csv", "--telemetry"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=LIMIT_S)

    failing = {semconv.TEST_SUITE: "answers", semconv.TEST_CASE_STATUS: "fail"}
    jaeger.wait_for(lambda seen: len(seen.traces(SERVICE, tags=failing)) == 1, LIMIT_S)
    [trace] = jaeger.traces(SERVICE, tags=failing)
    assert trace.orphans() == []
    assert trace.warnings() == []
    [suite] = [span for span in trace.spans if not span.parents]
    assert suite.name == "test suite answers"
    assert suite.tags[semconv.TEST_SUITE_STATUS] == "success"
    cases = [span for span in trace.spans if span.parents == (suite.span_id,)]
    assert {
        span.tags[semconv.TEST_CASE]: span.tags[semconv.TEST_CASE_STATUS] for span in cases
    } == {
        "answers.csv:2": "pass",
        "answers.csv:3": "fail",
    }
