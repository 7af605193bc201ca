"""What a judge found claim by claim, counted by code: quotes that are none of the case's count for nothing."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, NamedTuple

from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators.rubric import Claims
from agenteval_otel.judges.prompt import CaseText

__all__ = ["Counted", "claims_form", "counted"]

_GAP = re.compile(r"\.\.\.|\u2026")  # space and brackets around it are no word anyhow
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)")
_NO_WORD = re.compile(r"[\W_]+")
_MOST_CHARACTERS = 2_000


class Counted(NamedTuple):
    """The share of the claims that holds, each claim as the judge gave it, and how many quotes were not found."""

    share: float
    claims: tuple[Mapping[str, Any], ...]
    unfound: int


def claims_form() -> dict[str, Any]:
    """JSON Schema of the list: quote before evidence before verdict."""
    fields = {"quote": {"type": "string"}, "evidence": {"type": "string"}, "holds": {"type": "boolean"}}
    claim = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    return {"type": "array", "items": claim}


def counted(given: Any, claims: Claims, source: CaseText | None) -> Counted:
    """The claims that were given, held to what they were quoted from: ``share = holding / found``.

    Args:
        given: What the answer has for ``claims``.
        claims: What was asked for.
        source: The field that they are quoted from, as the judge saw it; of tool calls each one is a claim.

    Raises:
        EvaluationError: ``malformed_answer`` where one is no claim, where tool calls and verdicts are not equally many,
            or where most quotes are not in the source; ``out_of_range`` where there are more than were asked for.
        EvaluationSkipped: There are none: a share of nothing is no score.
    """
    if not isinstance(given, list):
        raise EvaluationError("the judge's answer has no list of claims", error_type="malformed_answer")
    held = source.text if source is not None else ""
    entries = held if isinstance(held, list) and claims.source == "tool_calls" else None
    each = None if entries is None else len(entries)
    if each is None and len(given) > claims.most:
        raise EvaluationError(f"the judge listed {len(given)} claims, of at most {claims.most}",
                              error_type="out_of_range")  # fmt: skip
    if each is not None and len(given) != each:
        raise EvaluationError(f"the judge gave {len(given)} verdicts for {each} entries", error_type="malformed_answer")
    listed = [_claim(one) for one in given]
    if not listed:
        raise EvaluationSkipped("no claims")
    texts = [_text_of(held)] * len(listed) if entries is None else [_text_of(one) for one in entries]
    found = [one for one, text in zip(listed, texts, strict=True) if _stands_in(one["quote"], text)]
    unfound = len(listed) - len(found)
    if unfound > len(found):
        raise EvaluationError(f"{unfound} of {len(listed)} quotes of the judge are not in the {claims.source}",
                              error_type="malformed_answer")  # fmt: skip
    return Counted(sum(one["holds"] for one in found) / len(found), tuple(found), unfound)


def _claim(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise EvaluationError("one of the judge's claims is no object", error_type="malformed_answer")
    quote, evidence, holds = given.get("quote"), given.get("evidence", ""), given.get("holds")
    if not isinstance(quote, str) or not quote.strip():
        raise EvaluationError("one of the judge's claims has no quote", error_type="malformed_answer")
    if not isinstance(holds, bool):
        raise EvaluationError("one of the judge's claims neither holds nor fails", error_type="malformed_answer")
    if not isinstance(evidence, str):
        raise EvaluationError("the evidence of a claim is no text", error_type="malformed_answer")
    return {"quote": quote[:_MOST_CHARACTERS], "evidence": evidence[:_MOST_CHARACTERS], "holds": holds}


def _text_of(held: Any) -> tuple[str, str]:
    """A source as it stands, and its letters and digits only: models change quotation marks, spaces and emphasis."""
    text = held if isinstance(held, str) else _ESCAPE.sub(" ", json.dumps(held, ensure_ascii=False))
    return text, _bare(text)


def _stands_in(quote: str, source: tuple[str, str]) -> bool:
    """Whether each part of the quote, where it leaves something out, is in the source, one behind the other."""
    text, bare = source
    parts = _parts_of(quote)
    if not parts:  # symbols only
        return quote.strip() in text
    if _stand_in(parts, bare):
        return True
    # A judge that copies what it sees copies JSON: a line's end is a backslash and an n there.
    return "\\" in quote and _stand_in(_parts_of(_ESCAPE.sub(" ", quote)), bare)


def _parts_of(quote: str) -> list[str]:
    return [part for part in map(_bare, _GAP.split(quote)) if part]


def _stand_in(parts: list[str], bare: str) -> bool:
    at = 0
    for part in parts:
        at = bare.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return bool(parts)


def _bare(text: str) -> str:
    """Letters and digits, in whatever form they are written; marks go first, of which a long row takes long to sort."""
    bare = _NO_WORD.sub("", text)
    if not bare.isascii():
        bare = _NO_WORD.sub("", unicodedata.normalize("NFKD", bare))
    return bare.casefold()
