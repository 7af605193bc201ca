"""One agent, scored by every entry point: the same answers have the same scores, and each is scored
once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import semconv
from agenteval_otel.testing import ModelReply, ModelServer

from .collector import Collector
from .entry_points import REPLIES
from .fixtures import running
from .process import bare_environment
from .programs import ROOT, finish
from .sidecar import EVERYTHING, Sidecar

pytestmark = pytest.mark.backend

LIMIT_S = 60.0
SETTINGS: dict[str, Any] = {
    "evaluators": [
        "ResponseHealth",
        {"type": "Contains", "criterion_name": "price", "substrings": ["EUR", "80"]},
        {
            "type": "KeywordCoverage",
            "criterion_name": "topics",
            "expected_keywords": ["open", "bell", "children"],
        },
        {
            "type": "RuleBased",
            "rules": [
                {"criterion": "short", "type": "length", "max": 100},
                {"criterion": "has_digits", "type": "regex", "pattern": "[0-9]"},
            ],
        },
    ],
    "sidecar": {"quiet_s": 0.5},
}
CAPTURE = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "span_only"}
WAYS = ("decorator", "middleware", "span_processor", "instrumented", "sidecar", "once")


@pytest.fixture(name="model")
def model_fixture() -> Iterator[ModelServer]:
    def reply(body: dict[str, Any]) -> ModelReply:
        return ModelReply(text=REPLIES[body["messages"][-1]["content"]])

    with ModelServer([reply]) as server:
        yield server


@pytest.fixture(name="start")
def start_fixture(
    model: ModelServer, collector: Collector, tmp_path: Path
) -> Callable[..., subprocess.Popen[str]]:
    """Starts the agent behind an entry point, a service of that name."""
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({**EVERYTHING, **SETTINGS}))

    def start(program: str, *command: str, **environment: str) -> subprocess.Popen[str]:
        variables = {
            "MODEL_URL": model.url,
            "AGENTEVAL_SETTINGS": str(file),
            "OTEL_SERVICE_NAME": program,
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.http_endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            **CAPTURE,
            **environment,
        }
        return subprocess.Popen(
            [*command, sys.executable, "-m", "tests.backends.entry_points", program],
            cwd=ROOT,
            env=bare_environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def scores_of(collector: Collector, service: str) -> dict[tuple[str, str], dict[str, Any]]:
    """By question and answer, the scores and labels of the span with the results, as soon as there
    is one for each question.
    """
    spans = collector.wait_for(
        lambda seen: (
            (found := with_results(seen, service)) and len(found) >= len(REPLIES) and found
        ),
        LIMIT_S,
    )
    assert len(spans) == len(REPLIES)
    return {
        (span[semconv.USER_PROMPT], span[semconv.FULL_RESPONSE]): {
            name: value
            for name, value in span.items()
            if name.endswith((".score", ".label", "overall_score"))
        }
        for span in spans
    }


def with_results(collector: Collector, service: str) -> list[dict[str, Any]]:
    """The attributes of the spans that carry an answer's results: agent spans, and run spans."""
    return [
        span.attributes
        for span in collector.spans(service)
        if semconv.OVERALL_SCORE in span.attributes
    ]


def test_every_entry_point_gives_the_same_scores(
    collector: Collector,
    own_collector: Collector,
    start: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
) -> None:
    """Decorator, middleware, span processor, instrumentor, sidecar, and the sidecar on a file of
    the Collector's.
    """
    program = str(Path(sys.executable).with_name("opentelemetry-instrument"))
    sidecar = Sidecar(
        tmp_path / "sidecar",
        SETTINGS,
        endpoint=collector.grpc_endpoint,
        environment={"OTEL_SERVICE_NAME": "sidecar", **CAPTURE},
    )
    with running(sidecar):
        off = {
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "OTEL_TRACES_EXPORTER": "otlp",
        }
        finish(
            *map(start, ("decorator", "middleware", "span_processor")),
            start("instrumented", program, **off),
            start("spans", OTEL_EXPORTER_OTLP_ENDPOINT=sidecar.http_endpoint),
            start("spans", OTEL_EXPORTER_OTLP_ENDPOINT=own_collector.http_endpoint),
        )
        own_collector.wait_for(lambda seen: len(seen.spans("spans")) == 2 * len(REPLIES), LIMIT_S)
        once = [
            sys.executable,
            "-m",
            "agenteval_otel",
            "serve",
            "--settings",
            str(tmp_path / "settings.json"),
            "--once",
            str(own_collector.file),
        ]
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.grpc_endpoint,
            "OTEL_SERVICE_NAME": "once",
            **CAPTURE,
        }
        done = subprocess.run(
            once,
            env=bare_environment(**environment),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, done.stderr
        assert "6 answers = 6 evaluated" in done.stdout
        scores = {way: scores_of(collector, way) for way in WAYS}
    for way in WAYS:
        assert scores[way].keys() == set(REPLIES.items()), way
        assert scores[way] == scores["decorator"], way
    assert len({json.dumps(item, sort_keys=True) for item in scores["decorator"].values()}) >= 5, (
        "scores that differ"
    )


def test_an_answer_is_scored_once_with_all_of_them_on(
    collector: Collector, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Decorator, span processor and sidecar: the decorator scores, the others count it as monitored
    already.
    """
    sidecar = Sidecar(
        tmp_path / "sidecar",
        SETTINGS,
        endpoint=collector.grpc_endpoint,
        environment={"OTEL_SERVICE_NAME": "second"},
    )
    with running(sidecar):
        (printed,) = finish(start("all_at_once", OTEL_EXPORTER_OTLP_ENDPOINT=sidecar.http_endpoint))
        count = len(REPLIES)
        assert printed.strip() == str({"evaluated": count, "already_monitored": count})
        sidecar.stop()
    assert f"{count} answers = {count} already_monitored" in sidecar.printed()
    assert with_results(collector, "second") == []
