"""Testing: deterministic doubles and contract checks, part of the product.

`InlineDispatcher` evaluates before the answer goes back, `RecordedTelemetry` keeps what is emitted, `ManualClock` is
time that a test moves, `ModelServer` a model provider on loopback, `ScriptedJudge` a judge that asks nobody, the
``check_*`` functions hold your own parts to their contracts.
"""

from agenteval_otel.pipeline import InlineDispatcher
from agenteval_otel.testing.checks import (
    AWKWARD_INPUTS,
    check_aggregation,
    check_component,
    check_dispatcher,
    check_evaluator,
    check_sampler,
    check_storage,
)
from agenteval_otel.testing.clock import ManualClock
from agenteval_otel.testing.model_server import ModelReply, ModelServer
from agenteval_otel.testing.reference_checks import check_embedder, check_ground_truth
from agenteval_otel.testing.scripted_judge import ScriptedJudge
from agenteval_otel.testing.telemetry import RecordedTelemetry

__all__ = [
    "AWKWARD_INPUTS",
    "InlineDispatcher",
    "ManualClock",
    "ModelReply",
    "ModelServer",
    "RecordedTelemetry",
    "ScriptedJudge",
    "check_aggregation",
    "check_component",
    "check_dispatcher",
    "check_embedder",
    "check_evaluator",
    "check_ground_truth",
    "check_sampler",
    "check_storage",
]
