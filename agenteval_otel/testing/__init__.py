"""Testing: deterministic doubles and contract checks, part of the product.

`InlineDispatcher` evaluates before the answer goes back, `RecordedTelemetry` keeps what is emitted, `ManualClock` is
time that a test moves, `ModelServer` a model provider on loopback, `ScriptedJudge` a judge with prepared answers. The
``check_*`` functions check your own parts against their contracts.
"""

from agenteval_otel.pipeline import InlineDispatcher
from agenteval_otel.testing.checks import (
    AWKWARD_INPUTS,
    check_aggregation,
    check_component,
    check_dispatcher,
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
    "AWKWARD_INPUTS", "InlineDispatcher", "ManualClock", "ModelReply", "ModelServer", "RecordedTelemetry",
    "ScriptedJudge", "check_aggregation", "check_component", "check_dispatcher", "check_embedder", "check_evaluator",
    "check_ground_truth", "check_sampler", "check_storage",
]  # fmt: skip
