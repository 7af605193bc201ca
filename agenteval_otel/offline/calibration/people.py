"""How people agree with each other, on the answers that two or more of them have labelled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from agenteval_otel.models.intervals import Estimate
from agenteval_otel.offline.calibration.agreement import LabelledRow, agreement_of

KAPPA: Final = "Cohen's kappa"
ALPHA: Final = "Krippendorff's alpha"


class PeopleAgreement(NamedTuple):
    """Holds how two or more people agree on the same answers.

    Attributes:
        people: How many there are.
        answers: How many answers have labels of two or more people.
        equal: The share of the pairs of labels of one answer that are equal.
        name: `KAPPA` of two people, else `ALPHA`.
        coefficient: Agreement beyond chance, -1 to 1. None if all labels are equal: what chance
            alone would give is not known then.
    """

    people: int
    answers: int
    equal: Estimate
    name: str
    coefficient: Estimate | None


def people_agreement(verdicts: Iterable[Mapping[str | None, bool]]) -> PeopleAgreement | None:
    """Measure how people agree. The result is None if no answer has labels of two people.

    Two people have Cohen's kappa. More have Krippendorff's alpha for two categories (1970), which
    takes answers that only some of them have labelled. It is the kappa of the table of all ordered
    pairs of labels of one answer, each pair with the weight 1 / (labels of the answer - 1), less
    its bias: 1 - (1 - kappa)(n - 1) / n for n labels. An answer is the independent unit of both.

    Args:
        verdicts: For each answer the verdict of each person, by what identifies the person.
    """
    shared = [of_answer for of_answer in verdicts if len(of_answer) > 1]
    if not shared:
        return None
    people: dict[str | None, None] = {}
    for of_answer in shared:
        people.update(dict.fromkeys(of_answer))
    rows: list[LabelledRow] = []
    if len(people) == 2:
        first, second = people
        rows = [LabelledRow(answer[first], answer[second]) for answer in shared]
    else:
        for position, of_answer in enumerate(shared):
            rows += _ordered_pairs(position, list(of_answer.values()))
    agreement = agreement_of(rows)
    equal = agreement.agreement._replace(scores=len(shared))
    name = KAPPA if len(people) == 2 else ALPHA
    if len({row.judge for row in rows} | {row.person for row in rows}) == 1:
        return PeopleAgreement(len(people), len(shared), equal, name, None)
    coefficient = agreement.kappa._replace(scores=len(shared))
    if name == ALPHA:
        labels = sum(len(of_answer) for of_answer in shared)
        unbiased = (labels - 1) / labels
        ends = [1 - (1 - end) * unbiased for end in coefficient[:3]]
        coefficient = coefficient._replace(mean=ends[0], low=ends[1], high=ends[2])
    return PeopleAgreement(len(people), len(shared), equal, name, coefficient)


def _ordered_pairs(answer: int, labels: list[bool]) -> list[LabelledRow]:
    rows: list[LabelledRow] = []
    weight = 1 / (len(labels) - 1)
    for position, label in enumerate(labels):
        others = labels[:position] + labels[position + 1 :]
        rows += [LabelledRow(label, other, weight, answer) for other in others]
    return rows
