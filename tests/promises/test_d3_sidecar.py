"""D3 of the sidecar: under load with faults it tells of itself, in at most 200 series whoever sends
to it.
"""

from __future__ import annotations

import gzip
from contextlib import suppress
from pathlib import Path

from agenteval_otel.testing import ModelReply, ModelServer
from tests.promises.figures import Recorder
from tests.promises.receiver import Receiver
from tests.promises.served import SETTINGS, Served, new_trace_id, trace_request
from tests.promises.sidecars import counted, points

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


CALLS, ANSWERED = "agenteval.judge.calls", {"agenteval.outcome": "answered"}
EXPORTS = 1_000
"""More than there are: at its end the sidecar exports no gauges."""


def has_metrics(receiver: Receiver, *names: str) -> bool:
    seen = {name for name, _, _ in points(receiver, EXPORTS)}
    return seen.issuperset(f"agenteval.{name}" for name in names)


def test_the_sidecar_tells_of_itself(tmp_path: Path, receiver: Receiver, promise: Recorder) -> None:
    """Queue, bytes, what was refused and invalid, last success; few series for hundreds of services
    and agents.
    """
    with Served(tmp_path, settings=LIMITED, endpoint=receiver.endpoint) as served:
        for number in range(300):
            request = trace_request(new_trace_id(), text="x" * 5_000, agent=f"agent-{number % 3}")
            served.post(request)
            if number % 50 == 0:
                served.post(b"garbage")
                served.post(gzip.compress(b"\0" * 70_000_000), Content_Encoding="gzip")
                served.post(trace_request(0))
                with suppress(OSError):
                    served.export(b"garbage")
        served.wait_for(lambda: has_metrics(receiver, "last_success"), "metrics")
        assert served.terminate() == 0
    series = list(points(receiver, EXPORTS))
    promise("D3", figure=f"sidecar under load with faults, 3 agents: {len(series)} series")
    assert has_metrics(receiver, *EVER)
    spans = {
        found["agenteval.spans.outcome"]: point.as_int
        for name, found, point in series
        if name == "agenteval.spans"
    }
    assert {"read", "refused", "invalid"} <= set(spans)
    assert spans["read"] == 300
    assert spans["invalid"] > 0
    assert len(series) <= ORDINARY


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
                for name, _, point in points(receiver, EXPORTS)
                if name == "agenteval.judge.breaker"
            )

        def is_answered() -> bool:
            return counted(receiver, CALLS, ANSWERED, EXPORTS) == 4

        # One after the other: an answer that comes after a failure would keep the breaker closed.
        for count, done in ((4, is_answered), (3, is_open), (3, is_open)):
            for _ in range(count):
                served.post(trace_request(new_trace_id()))
            served.wait_for(done, "answers, or an open breaker")
        assert served.terminate() == 0
    assert has_metrics(receiver, *OF_JUDGES)
    assert is_answered()
    assert counted(receiver, CALLS, {"agenteval.outcome": "breaker_open"}, EXPORTS) == 3
    series = list(points(receiver, EXPORTS))
    (cost,) = [point.as_double for name, _, point in series if name == "agenteval.judge.cost"]
    assert round(cost, 9) == 4 * (400 * 1.0 + 60 * 5.0) / 1e6
    promise("D3", figure=f"sidecar with a judge whose circuit opens: {len(series)} series")
    assert len(series) <= ORDINARY
