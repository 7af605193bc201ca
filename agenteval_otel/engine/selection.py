"""Selection: which of the configured evaluators a run takes, by execution and by tag.

What is left out is reported, never silently missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agenteval_otel.components import choices
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator

__all__ = ["LeftOut", "Selection", "select"]


class LeftOut(NamedTuple):
    """An evaluator that the run does not take, by its label, and why."""

    evaluator_type: str
    reason: str

    def __str__(self) -> str:
        return f"{self.evaluator_type} ({self.reason})"


class Selection(NamedTuple):
    """The evaluators that run, in configured order, and those that do not."""

    evaluators: tuple[Evaluator, ...]
    left_out: tuple[LeftOut, ...]


def select(evaluators: Sequence[Evaluator], *, execution: Sequence[str], tags: Sequence[str]) -> Selection:
    """Those of one of the executions that have at least one of the tags; an empty list takes all.

    Raises:
        ConfigurationError: A tag that no evaluator has (names those there are), or nothing is left to run.
    """
    known = sorted({tag for evaluator in evaluators for tag in evaluator.tags})
    for index, tag in enumerate(tags):
        if tag not in known:
            raise ConfigurationError(f"no evaluator has the tag {tag!r}{choices(tag, known)}", path=f"tags[{index}]")
    chosen: list[Evaluator] = []
    left_out: list[LeftOut] = []
    for evaluator in evaluators:
        reason = _reason(evaluator, execution, tags)
        if reason is None:
            chosen.append(evaluator)
        else:
            left_out.append(LeftOut(evaluator.label, reason))
    if not chosen:
        path = "execution" if execution else "tags"
        raise ConfigurationError(f"no evaluator is left to run: {', '.join(map(str, left_out))}", path=path)
    return Selection(tuple(chosen), tuple(left_out))


def _reason(evaluator: Evaluator, execution: Sequence[str], tags: Sequence[str]) -> str | None:
    if execution and evaluator.resolved_execution not in execution:
        return f"execution {evaluator.resolved_execution}"
    if tags and not set(tags) & set(evaluator.tags):
        return f"tags {', '.join(evaluator.tags)}" if evaluator.tags else "no tags"
    return None
