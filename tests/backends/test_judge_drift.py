"""A judge that gets worse, on the real stack twenty times as fast: who is notified, and what
`judge status` says.

The provider on loopback changes its answers; canaries are asked every second.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agenteval_otel.cli import main
from agenteval_otel.testing import ModelReply, ModelServer

from .collector import Collector
from .faults import LOOPBACK
from .programs import started
from .prometheus import Prometheus
from .provisioned import alerting
from .webhook import PostedAlert, Webhook

pytestmark = [pytest.mark.backend, pytest.mark.live, pytest.mark.timeout(400)]

DRIFTED, TIME_SCALE, LIMIT_S = "AgentevalJudgeDrifted", 0.05, 120.0
CANARIES = [
    {"prompt": "When do you open?", "response": text, "labels": {"polite": polite}}
    for text, polite in [("At nine, with pleasure.", True), ("Find out yourself.", False)] * 5
]


class Judge:
    """A provider whose model says which answers are polite, as long as it `is_right`."""

    is_right = True

    def reply(self, body: dict[str, Any]) -> ModelReply:
        polite = "yourself" not in json.dumps(body["messages"])
        return ModelReply(
            text=json.dumps({"evidence": [], "reason": "r", "score": polite is self.is_right})
        )


class Stack(NamedTuple):
    judge: Judge
    webhook: Webhook
    collector: Collector
    prometheus: Prometheus

    def posted(self, status: str) -> list[PostedAlert]:
        return [
            alert
            for alert in self.webhook.alerts
            if (alert.name, alert.status) == (DRIFTED, status)
        ]

    def status(self) -> int:
        """The exit code of `judge status`, of the Collector's page."""
        address = f"http://{LOOPBACK}:{self.collector.ports.prometheus}/metrics"
        return main(["judge", "status", "--from", address])


@pytest.fixture(name="stack")
def stack_fixture(tmp_path: Path) -> Iterator[Stack]:
    """The provisioned stack, and an application whose answers a judge scores, until the test is
    over.
    """
    judge, canaries = Judge(), tmp_path / "canaries.jsonl"
    canaries.write_text("\n".join(map(json.dumps, CANARIES)))
    with ModelServer([judge.reply]) as server:
        evaluator = {
            "type": "LLMJudge",
            "criterion_name": "polite",
            "description": "Is the answer polite?",
            "judge": f"openai_compatible:judge-1@{server.url}/v1",
        }
        settings = {
            "sample_rate": 1.0,
            "evaluators": [evaluator],
            "judge_health": {"canaries": str(canaries), "every_s": 1},
        }
        with alerting(tmp_path, settings, time_scale=TIME_SCALE) as made:
            program = started(
                "-m",
                "tests.backends.applications",
                "judged",
                str(tmp_path / "agenteval.yaml"),
                OTEL_SERVICE_NAME="judged",
                OTEL_EXPORTER_OTLP_ENDPOINT=made.collector.grpc_endpoint,
                OTEL_METRIC_EXPORT_INTERVAL="500",
            )
            try:
                yield Stack(judge, made.webhook, made.collector, made.prometheus)
            finally:
                program.kill()
                program.communicate()


def test_a_judge_that_gets_worse_is_a_ticket_and_resolves(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    """No alert while it agrees; one that names criterion, judge and check once it does not;
    resolved when it does.
    """
    agreement = "agenteval_judge_agreement > 0.99"
    stack.prometheus.wait_for(lambda seen: seen.query(agreement), LIMIT_S)
    assert stack.status() == 0
    assert stack.posted("firing") == []
    stack.judge.is_right = False
    stack.prometheus.wait_for(lambda _: stack.posted("firing"), LIMIT_S)
    (labels,) = {tuple(sorted(alert.labels.items())) for alert in stack.posted("firing")}
    assert {
        ("gen_ai_evaluation_name", "polite"),
        ("agenteval_judge_model", "judge-1"),
        ("agenteval_judge_check", "canary"),
        ("severity", "ticket"),
        ("job", "judged"),
    } <= {*labels}
    assert "not trusted with polite" in stack.posted("firing")[0].annotations["summary"]
    assert stack.status() == 1
    assert "no: canary" in capsys.readouterr().out
    stack.judge.is_right = True
    stack.prometheus.wait_for(lambda _: stack.posted("resolved"), LIMIT_S)
    assert stack.status() == 0
