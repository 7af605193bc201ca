"""Errors: what an `error.type` of an evaluator says."""

from __future__ import annotations

from typing import Final

from agenteval_otel import semconv as names
from agenteval_otel.telemetry.explanations.base import SLOW, Explanation

__all__ = ["ERROR_TYPES", "explanation_of_error"]

ERROR_TYPES: Final[dict[str, Explanation]] = {
    "timeout": Explanation(
        "The evaluator took longer than its limit: 5 s in the lane `cpu`, 30 s in `model`, or its `timeout_s`.",
        ("a judge that answers late", "a pattern of a rule that searched longer than its limit"),
        ("Give it a `timeout_s` that fits, or a smaller `sample_rate`.",),
    ),
    "quarantined": Explanation(
        "The evaluator would not stop at its limit, or ended its process, three times; since then it fails at once.",
        ("it blocks or computes without a limit of its own, or swallows its cancellation", "it crashes: see `crashed`"),
        ("Give what it waits for a time limit, and restart the process.",),
    ),
    "crashed": Explanation(
        "The child process of the lane `cpu` ended while it was at this evaluation.",
        ("a crash in an extension module, `os._exit`, or the system's memory limit",),
        ("Run the evaluator on the same input with `run_evaluation`, in a process that may die.",),
    ),
    "lane_full": Explanation("8,192 evaluations waited for the lane `cpu`.", (SLOW,), ("Sample less.",)),
    "cancelled": Explanation(
        "The evaluator cancelled itself.", ("its own code cancels its task",), ("Raise `EvaluationSkipped` instead.",)
    ),
    "wrong_lane": Explanation(
        "An evaluator in the lane `cpu` awaited something.",
        ("`evaluate` awaits, and `lane` says `cpu`",),
        ("Let `lane` give `model`.",),
    ),
    "invalid_score": Explanation(
        "What the evaluator gave is no score: NaN, an infinity, a number beyond every float, or no `Score` at all.",
        ("a division by nothing in its code",),
        ("Raise `EvaluationSkipped` where there is nothing to say.",),
    ),
    "invalid_result": Explanation(
        "The evaluator gave no list of results, or one for a criterion that it does not declare.",
        ("`criteria` and `evaluate` do not agree",),
        ("Check it with `agenteval_otel.testing.check_evaluator`.",),
    ),
    "invalid_input": Explanation(
        "The child process of the lane `cpu` could not read the input.",
        ("an input that is nested too deeply, given to `run_evaluation` or by `capture=`",),
        ("Run the evaluator on the same input with `run_evaluation`.",),
    ),
    "missing_text": Explanation(
        "A rule or a keyword check looks at a field that this input does not have.",
        ("a path below `context` that nobody annotated",),
        ("Give it with `annotate(context=...)`, or change the field.",),
    ),
}
"""By `error.type` of a failed result; other words are evaluators' own, or classes of what they raised."""


def explanation_of_error(error_type: str) -> Explanation:
    """The explanation of an `error.type`; for a word that is not ours, that it names what was raised."""
    if error_type == names.OTHER:
        return Explanation(
            f"A word that reads like no category, or one beyond {names.MAX_ERROR_TYPES} different ones of a criterion.",
            ("an evaluator that makes up an `error_type` for each failure, or puts a sentence there",),
            ("Use few, short words: they leave the process and are labels of a metric.",),
        )
    return ERROR_TYPES.get(error_type) or Explanation(
        f"The evaluator failed with `{error_type}`: a word of its own, or the class of what it raised.",
        ("a defect of the evaluator, or what it asks is away",),
        ("Run it offline on such an input: `run_evaluation_sync` shows the message.",),
    )
