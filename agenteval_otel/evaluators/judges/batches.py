"""Answers of judges that come through a provider's batch API, at half the price and hours later.

An evaluation runs twice. The first time its judges have no answers: they note their questions, and
its results are left out. When the batch has ended it runs again, with the answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from agenteval_otel.errors import JudgeError
from agenteval_otel.evaluators.judges.answers import JudgeRequest, Verdict
from agenteval_otel.evaluators.judges.budget import Price, Reservation
from agenteval_otel.evaluators.judges.ledger import Amount, LedgerEntry, LedgerKey

PRICE_SHARE: Final = 0.5
"""Share of the usual price that a provider charges in a batch."""
BATCHED: Final = "batched"
"""The ``error_type`` while a request waits, and never in a result."""


class BatchQuestion(NamedTuple):
    """Holds a question that waits for a batch, and what is charged for it so far.

    The judge is the one with its guards.
    """

    judge: Any
    request: JudgeRequest
    reservation: Reservation


class BatchAnswers:
    """Holds the answers for the judges of one evaluation, by the key of the question.

    It also holds the questions that are not answered yet.
    """

    def __init__(self, answers: Mapping[str, Verdict | JudgeError]) -> None:
        self.answers = dict(answers)
        self.missing = dict[str, BatchQuestion]()

    def __repr__(self) -> str:
        return f"<BatchAnswers {len(self.answers)}, missing {len(self.missing)}>"


def reservation_to_json(reservation: Reservation) -> dict[str, Any]:
    entry = reservation.entry
    fields = None if entry is None else [entry.entry_id, entry.keys, entry.amount, entry.expires]
    price = reservation.price
    return {
        "entry": fields,
        "price": None if price is None else price.model_dump(),
        "probability": reservation.probability,
    }


def reservation_of_json(value: Mapping[str, Any]) -> Reservation:
    entry = None
    if value["entry"] is not None:
        entry_id, keys, amount, expires = value["entry"]
        ledger_keys = tuple(LedgerKey(*key) for key in keys)
        entry = LedgerEntry(entry_id, ledger_keys, Amount(*amount), expires)
    price = None if value["price"] is None else Price(**value["price"])
    return Reservation(entry, price, value["probability"])


def answer_to_json(answer: Verdict | JudgeError) -> dict[str, Any]:
    if isinstance(answer, JudgeError):
        return {"error": str(answer), "error_type": answer.error_type}
    return {"verdict": answer.model_dump(mode="json")}


def answer_of_json(value: Mapping[str, Any]) -> Verdict | JudgeError:
    if "error" in value:
        return JudgeError(value["error"], error_type=value["error_type"])
    return Verdict.model_validate(value["verdict"])
