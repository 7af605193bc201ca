"""Every attribute, event and metric name that we read or write, with its unit: the one place where a name is spelled.

The names under ``gen_ai.`` are those of the OpenTelemetry GenAI conventions (Development status); the SDK's own
constants for them are deprecated, so they stand here as strings. Our own names go under ``agenteval.``. The exceptions,
which the conventions do not define but the product's specification or open proposals ask for, are marked *extension*.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["OUTCOMES", "Instrument", "criterion_label", "criterion_score"]

SCOPE_NAME: Final = "agenteval_otel"
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.38.0"

# --- events -----------------------------------------------------------------------------------------------------------
EVENT_RESULT: Final = "gen_ai.evaluation.result"

# --- attributes of the conventions ------------------------------------------------------------------------------------
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
SCORE_VALUE: Final = "gen_ai.evaluation.score.value"
SCORE_LABEL: Final = "gen_ai.evaluation.score.label"
EXPLANATION: Final = "gen_ai.evaluation.explanation"
ERROR_TYPE: Final = "error.type"
OPERATION_NAME: Final = "gen_ai.operation.name"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_ID: Final = "gen_ai.response.id"

OPERATION_EVALUATION: Final = "evaluation"
OPERATION_INVOKE_AGENT: Final = "invoke_agent"

# --- extensions under gen_ai. -----------------------------------------------------------------------------------------
EVALUATOR_ID: Final = "gen_ai.evaluation.evaluator.id"
EVALUATOR_VERSION: Final = "gen_ai.evaluation.evaluator.version"
EVALUATOR_TYPE: Final = "gen_ai.evaluation.evaluator.type"
EVALUATION_MODULE: Final = "gen_ai.evaluation.module"
HAS_GROUND_TRUTH: Final = "gen_ai.evaluation.has_ground_truth"
USER_PROMPT: Final = "gen_ai.evaluation.user_prompt"
FULL_RESPONSE: Final = "gen_ai.full_nl_response"

# --- our own attributes -----------------------------------------------------------------------------------------------
REASON_CODE: Final = "agenteval.evaluation.reason_code"
SCORE_NORMALIZED: Final = "agenteval.evaluation.score.normalized"
THRESHOLD: Final = "agenteval.evaluation.threshold"
SUSPECTED_INJECTION: Final = "agenteval.evaluation.suspected_injection"
OVERALL_SCORE: Final = "agenteval.evaluation.overall_score"
FAILED_CRITERIA: Final = "agenteval.evaluation.failed_criteria"
EVALUATION_SAMPLED: Final = "agenteval.evaluation.sampled"
EVALUATION_CRITERIA: Final = "agenteval.evaluation.criteria"
SAMPLING_PROBABILITY: Final = "agenteval.sampling.probability"
SAMPLING_REASON: Final = "agenteval.sampling.reason"
STREAM_END: Final = "agenteval.stream.end"
OUTCOME: Final = "agenteval.outcome"

LABEL_PASS: Final = "pass"
LABEL_FAIL: Final = "fail"

# --- accounting: every call of a monitored handler ends in exactly one of these ---------------------------------------
EVALUATED: Final = "evaluated"
NOT_SAMPLED: Final = "not_sampled"
DISABLED: Final = "disabled"
DROPPED_QUEUE_FULL: Final = "dropped_queue_full"
DROPPED_BYTES: Final = "dropped_bytes"
DROPPED_RATE: Final = "dropped_rate"
DROPPED_BUDGET: Final = "dropped_budget"
DROPPED_STEPDOWN: Final = "dropped_stepdown"
DROPPED_SHUTDOWN: Final = "dropped_shutdown"
CAPTURE_FAILED: Final = "capture_failed"
PIPELINE_FAILED: Final = "pipeline_failed"

OUTCOMES: Final = (
    EVALUATED, NOT_SAMPLED, DISABLED, DROPPED_QUEUE_FULL, DROPPED_BYTES, DROPPED_RATE, DROPPED_BUDGET,
    DROPPED_STEPDOWN, DROPPED_SHUTDOWN, CAPTURE_FAILED, PIPELINE_FAILED,
)  # fmt: skip

# --- limits -----------------------------------------------------------------------------------------------------------
OTHER: Final = "_other"
MAX_AGENTS: Final = 64
MAX_MODELS: Final = 8
MAX_WORDS: Final = 16
"""Distinct categories, and distinct error types, of one criterion."""
MAX_CRITERIA_PER_SPAN: Final = 50
"""The SDK evicts the oldest attributes beyond 128: two a criterion leave room for the core attributes."""


class Instrument(NamedTuple):
    """A metric as it is created: name, unit, what it tells, and bucket boundaries where it is a histogram."""

    name: str
    unit: str
    description: str
    boundaries: tuple[float, ...] | None = None


_SECONDS = (0.01, 0.04, 0.16, 0.64, 2.56, 10.24, 40.96)

METRIC_SCORE: Final = Instrument(
    "gen_ai.evaluation.score", "1", "Normalized score of a criterion, 0 worst to 1 best.",
    (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0),
)  # fmt: skip
METRIC_RESULTS: Final = Instrument("agenteval.evaluation.results", "{result}", "Scored results by label.")
METRIC_WEIGHT: Final = Instrument("agenteval.evaluation.weight", "1", "Sum of w = 1/probability.")
METRIC_WEIGHT_SQUARED: Final = Instrument("agenteval.evaluation.weight_squared", "1", "Sum of w squared.")
METRIC_WEIGHTED_SCORE: Final = Instrument("agenteval.evaluation.weighted_score", "1", "Sum of w times score.")
METRIC_WEIGHTED_SCORE_W2: Final = Instrument(
    "agenteval.evaluation.weighted_score_w2", "1", "Sum of w squared times score."
)
METRIC_WEIGHTED_SCORE_SQUARED_W2: Final = Instrument(
    "agenteval.evaluation.weighted_score_squared_w2", "1", "Sum of w squared times score squared."
)
METRIC_ERRORS: Final = Instrument("agenteval.evaluation.errors", "{error}", "Evaluators that failed, by error type.")
METRIC_DURATION: Final = Instrument(
    "agenteval.evaluation.duration", "s", "Time of an evaluator that calls a model, and of a whole run.", _SECONDS
)
METRIC_LAG: Final = Instrument(
    "agenteval.evaluation.lag", "s", "End of the response to its result.", (0.1, 0.4, 1.6, 6.4, 25.6, 102.4)
)
METRIC_RESPONSES: Final = Instrument("agenteval.responses", "{response}", "Calls of monitored handlers by outcome.")
METRIC_QUEUE_SIZE: Final = Instrument("agenteval.queue.size", "{response}", "Responses waiting or under evaluation.")
METRIC_QUEUE_CAPACITY: Final = Instrument("agenteval.queue.capacity", "{response}", "Responses the queue may hold.")
METRIC_QUEUE_BYTES: Final = Instrument("agenteval.queue.bytes", "By", "Estimated bytes held by the queue.")
METRIC_LAST_SUCCESS: Final = Instrument("agenteval.last_success", "s", "Unix time of the last delivered result.")


def criterion_score(criterion: str) -> str:
    """The run span's attribute for a criterion's raw score (*extension*)."""
    return f"gen_ai.evaluation.{criterion}.score"


def criterion_label(criterion: str) -> str:
    """The run span's attribute for a criterion's label (*extension*)."""
    return f"gen_ai.evaluation.{criterion}.label"
