"""Escalations as settings say them: each is held against the evaluators that it is for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from agenteval_otel.engine.stages import check_escalation
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.sampling.escalation import Escalation

__all__ = ["unfit_escalations"]


class _Entry(Protocol):
    """What settings hold of one agent, or of all."""

    @property
    def evaluators(self) -> Sequence[Evaluator] | None: ...
    @property
    def escalation(self) -> Escalation | bool | None: ...


def unfit_escalations(settings: _Entry, agents: Mapping[str, _Entry]) -> list[tuple[str | None, str]]:
    """A problem for each rule and each name that could never match.

    The settings' own escalation is for all agents that have none: a criterion that one of them scores will do, and
    handlers may bring evaluators that ask a model. An agent's own is for the agent's evaluators.
    """
    problems: list[tuple[str | None, str]] = []
    if isinstance(settings.escalation, Escalation):
        heirs = [agent for agent in agents.values() if agent.escalation is None]
        evaluators = [*(settings.evaluators or ()), *(one for agent in heirs for one in agent.evaluators or ())]
        problems += _problems_of(settings.escalation, evaluators, "escalation", complete=False)
    for name, agent in agents.items():
        if isinstance(agent.escalation, Escalation):
            own = (settings.evaluators if agent.evaluators is None else agent.evaluators) or ()
            problems += _problems_of(agent.escalation, own, f"agents.{name}.escalation", complete=True)
    return problems


def _problems_of(
    escalation: Escalation, evaluators: Sequence[Evaluator], path: str, *, complete: bool
) -> Sequence[tuple[str | None, str]]:
    try:
        check_escalation(escalation, evaluators, path=path, complete=complete)
    except ConfigurationError as failure:
        return failure.problems
    return ()
