"""D3 of the sidecar: under load with faults it tells of itself, in at most 200 series whoever sends
to it.
"""

from __future__ import annotations

import gzip
from contextlib import suppress
from pathlib import Path
from typing import Any

from agenteval_otel.testing import ModelReply, ModelServer
from tests.promises.figures import Recorder
from tests.promises.receiver import Receiver
from tests.promises.served import SETTINGS, Served, new_trace_id, trace_request

ORDINARY = 200
EVER = (
    "queue.size",
    "queue.bytes",
    "queue.max_bytes",
    "queue.drain_time",
    "responses",
    "last_success",
    "spans",
)
OF_JUDGES = tuple(
    f"judge.{name}"
    for name in ("calls", "tokens", "cost", "duration", "breaker", "budget.remaining")
)
SIDECAR = "sidecar: {quiet_s: 0.2, parent_wait_s: 0.4, max_waiting_bytes: 1048576}\n"
LIMITED = SETTINGS + SIDECAR
JUDGED = f"""
sample_rate: 1.0
evaluators:
  - type: LLMJudge
    criterion_name: polite
    description: Is the answer polite?
    judge:
      {{type: openai_compatible, model: m, base_url: "URL/v1", max_retries: 0, breaker: {{failures: 3, open_s: 60}},
       spend: {{prices: {{"*": {{input: 1.0, output: 5.0}}}}, usd_per_day: 100.0}}}}
{SIDECAR}"""
VERDICT = '{"evidence": [], "reason": "as asked", "score": true}'


def points(receiver: Receiver) -> dict[str, list[Any]]:
    """The points of the newest export that has any, by metric."""
    newest: dict[str, list[Any]] = {}
    for resource in receiver.resources("metrics"):
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            data: Any = getattr(metric, metric.WhichOneof("data"))
            newest[metric.name] = list(data.data_points)
    return newest


def attributes(point: Any) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in point.attributes}


def calls_by_outcome(receiver: Receiver) -> dict[str, int]:
    calls = points(receiver).get("agenteval.judge.calls", ())
    return {attributes(point)["agenteval.outcome"]: point.as_int for point in calls}


def test_the_sidecar_tells_of_itself(tmp_path: Path, receiver: Receiver, promise: Recorder) -> None:
    """Queue, bytes, what was refused and invalid, last success; few series for hundreds of services
    and agents.
    """
    with Served(tmp_path, settings=LIMITED, endpoint=receiver.endpoint) as served:
        for number in range(300):
            served.post(
                trace_request(new_trace_id(), text="x" * 5_000, agent=f"agent-{number % 3}")
            )
            if number % 50 == 0:
                served.post(b"garbage")
                served.post(gzip.compress(b"\0" * 70_000_000), Content_Encoding="gzip")
                served.post(trace_request(0))
                with suppress(OSError):
                    served.export(b"garbage")
        served.wait_for(lambda: "agenteval.last_success" in points(receiver), "metrics")
        assert served.terminate() == 0
    seen = points(receiver)
    missing = [name for name in EVER if f"agenteval.{name}" not in seen]
    outcomes = {
        outcome for point in seen["agenteval.spans"] for outcome in attributes(point).values()
    }
    count = sum(map(len, seen.values()))
    promise("D3", figure=f"sidecar under load with faults, 3 agents: {count} series")
    assert missing == []
    assert {"read", "refused", "invalid"} <= outcomes
    assert count <= ORDINARY


def test_the_sidecar_tells_of_its_judges(
    tmp_path: Path, receiver: Receiver, promise: Recorder
) -> None:
    """Calls, tokens, cost, latency, and the circuit breaker, which opens when the judge's endpoint
    fails.
    """
    replies = [
        *[ModelReply(text=VERDICT, input_tokens=400, output_tokens=60)] * 4,
        ModelReply(status=500),
    ]
    with (
        ModelServer(replies) as judge,
        Served(
            tmp_path, settings=JUDGED.replace("URL", judge.url), endpoint=receiver.endpoint
        ) as served,
    ):

        def is_open() -> bool:
            return any(
                point.as_int or point.as_double
                for point in points(receiver).get("agenteval.judge.breaker", ())
            )

        # One after the other: an answer that comes after a failure would keep the breaker closed.
        for count, done in (
            (4, lambda: calls_by_outcome(receiver).get("answered") == 4),
            (3, is_open),
            (3, is_open),
        ):
            for _ in range(count):
                served.post(trace_request(new_trace_id()))
            served.wait_for(done, "answers, or an open breaker")
        assert served.terminate() == 0
    seen = points(receiver)
    assert [name for name in OF_JUDGES if f"agenteval.{name}" not in seen] == []
    calls = calls_by_outcome(receiver)
    assert calls["answered"] == 4
    assert calls["breaker_open"] == 3
    (cost,) = seen["agenteval.judge.cost"]
    assert round(cost.as_double, 9) == 4 * (400 * 1.0 + 60 * 5.0) / 1e6
    count = sum(map(len, seen.values()))
    promise("D3", figure=f"sidecar with a judge whose circuit opens: {count} series")
    assert count <= ORDINARY
