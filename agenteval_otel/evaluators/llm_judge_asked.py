"""How each criterion is put to a judge: its name in the answer, its scale, and how the score is made of the reply."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from agenteval_otel.evaluators.llm_judge_scales import (
    TEN,
    AnswerScale,
    asked_on,
    bounds_of_levels,
    original_scale,
)
from agenteval_otel.evaluators.rubric import Claims, Rubric, with_bounds
from agenteval_otel.models import EvaluationCriteria, ScoreValue
from agenteval_otel.scoring.scales import BOOLEAN_SCALES

__all__ = ["Asked", "asked_of"]

_TRUTH = ({"true", "false"}, {"pass", "fail"})


class Asked(NamedTuple):
    """A criterion that the judge is asked for: its name in the answer, and how it is put and read.

    `put` makes the score of what the judge gave on `scale`; of claims, of the share that holds.
    """

    key: str
    criterion: EvaluationCriteria
    description: str
    steps: Sequence[str]
    levels: Mapping[str, str]
    edge_cases: Sequence[str]
    claims: Claims | None
    scale: AnswerScale
    put: Callable[[ScoreValue], ScoreValue]
    needs: Sequence[str]
    takes: Sequence[str]


def asked_of(
    rubrics: Iterable[Rubric], criteria: Iterable[EvaluationCriteria], *, needs: Sequence[str], takes: Sequence[str],
    as_original: bool = False, in_tenths: bool = False,
) -> list[Asked]:  # fmt: skip
    """The rubrics whose criterion is among those that are asked for, in the rubrics' order.

    Args:
        rubrics: The evaluator's.
        criteria: What is asked for; scale, threshold and description of the first of a name are the ones that count.
        needs: What a rubric needs that says nothing of its own.
        takes: What is shown too for such a rubric.
        as_original: The scales are the original framework's.
        in_tenths: The judge answers from 0 to 10, and the score is a tenth of that: GoGrid's.
    """
    by_name: dict[str, EvaluationCriteria] = {}
    for criterion in criteria:
        by_name.setdefault(criterion.name, criterion)
    found: list[Asked] = []
    for index, rubric in enumerate(rubrics):
        wanted = by_name.get(rubric.criterion_name)
        if wanted is None:
            continue
        put: Callable[[ScoreValue], ScoreValue]
        levels = rubric.levels_on(wanted)
        criterion = with_bounds(wanted, levels)
        if in_tenths:
            scale, put = TEN, _tenth
        elif as_original:
            scale, put = original_scale(criterion), _as_it_is
        else:
            scale, put = _scale_of(rubric, criterion, levels)
        found.append(Asked(
            key=_key_of(criterion.name, index, taken={one.key for one in found} | by_name.keys()),
            criterion=criterion, description=criterion.description or rubric.description, steps=rubric.steps,
            levels=levels, edge_cases=rubric.edge_cases, claims=rubric.claims, scale=scale, put=put,
            needs=needs if rubric.needs is None else rubric.needs,
            takes=takes if rubric.takes is None else rubric.takes,
        ))  # fmt: skip
    return found


def _key_of(name: str, index: int, *, taken: Set[str]) -> str:
    """The criterion's name where every provider takes it as a field's, else a word of ours that is nobody's name."""
    if name.isidentifier() and name.isascii() and len(name) <= 64:
        return name
    key = f"criterion_{index + 1}"
    while key in taken:
        key += "_"
    return key


def _scale_of(
    rubric: Rubric, criterion: EvaluationCriteria, levels: Mapping[str, str]
) -> tuple[AnswerScale, Callable[[ScoreValue], ScoreValue]]:
    if rubric.claims is not None:
        unit = criterion.model_copy(update={"scale": "numeric", "minimum": None, "maximum": None})
        return asked_on(unit, {}), _share_on(criterion)
    if criterion.scale == "numeric" and levels:
        bounds = bounds_of_levels(levels)
        if bounds is not None:
            return asked_on(criterion, levels), _place_between(*bounds)
        if set(levels) in _TRUTH:
            return asked_on(criterion.model_copy(update={"scale": "pass/fail"}), {}), float
        return asked_on(criterion, {}), _as_it_is  # they lie on the scale already
    return asked_on(criterion, levels), _as_it_is


def _as_it_is(raw: ScoreValue) -> ScoreValue:
    return raw


def _tenth(raw: ScoreValue) -> ScoreValue:
    return float(raw) / 10


def _place_between(low: float, high: float) -> Callable[[ScoreValue], ScoreValue]:
    return lambda raw: (float(raw) - low) / (high - low)


def _share_on(criterion: EvaluationCriteria) -> Callable[[ScoreValue], ScoreValue]:
    """A share on the criterion's range; on a scale of two it passes where all of it holds."""
    if criterion.scale in BOOLEAN_SCALES:
        return lambda share: float(share) == 1.0
    low, high = (1.0, 5.0) if criterion.scale == "likert5" else (criterion.minimum, criterion.maximum)
    if low is None or high is None:
        return _as_it_is
    return lambda share: low + float(share) * (high - low)
