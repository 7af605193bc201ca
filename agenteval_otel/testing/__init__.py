"""Testing: deterministic doubles and contract checks, part of the product.

`RecordedTelemetry` keeps what is emitted, `ManualClock` is time that a test moves, `ModelServer` a
model provider on loopback, `ScriptedJudge` a judge with prepared answers, `CassetteJudge` one with
recorded verdicts. The ``check_*`` functions check your own parts against their contracts. With
``configure(dispatcher="inline")`` a call is evaluated before it returns. Fixtures and
`assert_evaluation` come from the pytest plugin: docs/pytest.md.
"""

from agenteval_otel.testing.cassette import CassetteJudge
from agenteval_otel.testing.checks import (
    check_component,
    check_embedder,
    check_evaluator,
    check_ground_truth,
    check_sampler,
    check_storage,
)
from agenteval_otel.testing.doubles import ManualClock, RecordedTelemetry, ScriptedJudge
from agenteval_otel.testing.model_formats import ModelReply
from agenteval_otel.testing.model_server import ModelServer

__all__ = [
    "CassetteJudge", "ManualClock", "ModelReply", "ModelServer", "RecordedTelemetry", "ScriptedJudge",
    "check_component", "check_embedder", "check_evaluator", "check_ground_truth", "check_sampler", "check_storage",
]  # fmt: skip
