"""Stages: which evaluators wait for the others, and whether an escalation fits the evaluators that it is for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agenteval_otel.components.explained import known_choices
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators.base import Evaluator
from agenteval_otel.models import EvaluationResult
from agenteval_otel.models.value import copy_with
from agenteval_otel.sampling.escalation import Escalation, ResultSampler
from agenteval_otel.scoring.probability import SamplingDecision, independent

NOT_ESCALATED = "not_escalated"
"""Why a criterion of the second stage has no score: no rule matched, and the baseline did not sample the answer."""
Problems = list[tuple[str | None, str]]


def waits(evaluator: Evaluator, escalation: Escalation) -> bool:
    """Whether the evaluator belongs to the second stage: it scores a criterion that is named, or asks a model."""
    if not escalation.criteria:
        return evaluator.calls_model
    return any(criterion.name in escalation.criteria for criterion in evaluator.criteria())


def escalated(result: EvaluationResult, decision: SamplingDecision) -> EvaluationResult:
    """A result of the second stage: with the probability of having got there, and why it did."""
    probability = independent(result.probability, decision.probability)
    return copy_with(result, {"probability": probability, "sampling_reason": decision.reason})


def check_escalation(
    escalation: Escalation, evaluators: Sequence[Evaluator], *, path: str = "escalation", complete: bool = True
) -> None:
    """Refuse what could never happen with these evaluators.

    Args:
        path: Where the escalation stands.
        complete: No others will be added: then at least one of them has to wait, and a disagreement needs two that do
            not.

    Raises:
        ConfigurationError: A rule or a list of criteria names a criterion that no evaluator of its stage scores (with
            the known ones), or no evaluator waits.
    """
    second = {id(evaluator) for evaluator in evaluators if waits(evaluator, escalation)}
    waiting = _names(member for member in evaluators if id(member) in second)
    first = _names(member for member in evaluators if id(member) not in second)
    problems: Problems = [
        (f"{path}.criteria[{index}]", f"no evaluator scores {name!r}{known_choices(name, [*first, *waiting])}")
        for index, name in enumerate(escalation.criteria) if name not in waiting
    ]  # fmt: skip
    if complete and not waiting and not problems:
        problems.append((path, "no evaluator asks a model, so none waits: name those that do in criteria"))
    for index, rule in enumerate(escalation.rules):
        if isinstance(rule, ResultSampler):
            problems += _problems_of(rule, first, waiting, path=f"{path}.rules[{index}]", complete=complete)
    if problems:
        raise ConfigurationError.of(problems)


def _problems_of(
    rule: ResultSampler, first: Sequence[str], waiting: Sequence[str], *, path: str, complete: bool
) -> Problems:
    problems: Problems = []
    for index, name in enumerate(rule.criteria):
        if name not in first:
            wrong = f"{name!r} is scored in the second stage" if name in waiting else f"no evaluator scores {name!r}"
            problems.append(
                (f"{path}.criteria[{index}]", f"{wrong}: rules look at the first stage{known_choices(name, first)}")
            )
    if complete and not rule.criteria and len(first) < rule.at_least:
        needed = "a criterion" if rule.at_least == 1 else f"{rule.at_least} criteria"
        problems.append((path, f"needs {needed} of the first stage, which has {', '.join(first) or 'none'}"))
    return problems


def _names(evaluators: Iterable[Evaluator]) -> list[str]:
    return list(dict.fromkeys(criterion.name for evaluator in evaluators for criterion in evaluator.criteria()))
