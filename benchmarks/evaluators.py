"""The evaluators that the benchmarks run, in a module of their own: a worker process can import
them by name.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Callable
from typing import Any

from agenteval_otel.evaluators import (
    CompletedWithin,
    Contains,
    CostWithin,
    CriterionEvaluator,
    Evaluator,
    ExactMatch,
    KeywordCoverage,
    LexicalSimilarity,
    LLMJudge,
    NLPAccuracy,
    ResponseHealth,
    RuleBased,
    Sentiment,
    ToolUsage,
    ToolUse,
    Toxicity,
)
from agenteval_otel.models import EvaluationInput, Score
from benchmarks.loops import busy

__all__ = ["Busy", "Case", "cases", "eight", "prose"]

Case = tuple[Evaluator, Callable[[str], EvaluationInput]]
"""An evaluator, and what it is given for an answer."""

KEYWORDS = ("Paris", "capital", "France", "government", "Seine")
LEGAL = ("liability", "warranty", "indemnity")


class Busy(CriterionEvaluator, type="BenchmarkBusy"):
    """Pure Python that holds the interpreter for `loops` turns, none for a trivial evaluator."""

    criterion_name: str = "busy"
    loops: int = 100_000
    execution: Any = "process"

    @property
    def lane(self) -> Any:
        return "cpu" if self.execution == "process" else "free"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        busy(self.loops)
        return Score(value=1.0)


async def _at_once(prompt: str) -> str:
    return '{"evidence": [], "reason": "as asked", "score": true}'


def note(path: str) -> None:
    """Append a byte to the file, in one write."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, b".")
    os.close(handle)


def eight() -> list[Any]:
    """All deterministic evaluators that the package has, some of them twice with other settings:
    eight criteria.
    """

    def rule(name: str, **check: Any) -> RuleBased:
        return RuleBased.load({"rules": [{"criterion": name, **check}]})

    return [
        ResponseHealth(),
        rule("length", type="length", min=10, max=5_000),
        rule("mentions", type="includes", keywords=["Paris"], caseSensitive=False),
        rule(
            "no_promise",
            type="regex",
            pattern=r"\bguarantee(d|s)?\b",
            flags="i",
            expectedOutcome="no_match",
        ),
        rule("names_a_year", type="regex", pattern=r"\b(19|20)\d\d\b", expectedOutcome="no_match"),
        KeywordCoverage(expected_keywords=KEYWORDS, criterion_name="coverage"),
        KeywordCoverage(expected_keywords=LEGAL, match_whole_word=False, criterion_name="legal"),
        KeywordCoverage(
            expected_keywords=("since", "because"), case_sensitive=True, criterion_name="reasons"
        ),
    ]


def prose(length: int) -> str:
    """English, of so many characters, always the same: a few thousand different words, with
    punctuation.
    """
    chance = random.Random(7)
    syllables = ("ta", "re", "in", "mo", "ble", "st", "or", "ca", "ing", "pre", "ly", "on")
    words = ["".join(chance.choices(syllables, k=chance.randint(1, 4))) for _ in range(3_000)]
    words += ["Paris", "capital", "the", "of", "government"] * 200
    text = ""
    while len(text) < length:
        text += " ".join(chance.choices(words, k=12)).capitalize() + ". "
    return text[:length]


def cases() -> dict[str, Case]:
    """Every deterministic evaluator, by the name of its line in the table."""

    def rule(**check: Any) -> RuleBased:
        return RuleBased.load({"rules": [{"criterion": "rule", **check}]})

    def answer(text: str) -> EvaluationInput:
        return EvaluationInput(response=text)

    def table(text: str) -> EvaluationInput:
        return EvaluationInput(
            response=json.dumps(
                [{"id": 1, "name": text[at : at + 40]} for at in range(0, len(text), 50)]
            )
        )

    def with_reference(text: str) -> EvaluationInput:
        return EvaluationInput(response=text, ground_truth=" ".join(reversed(text.split())))

    def called(text: str) -> EvaluationInput:
        calls = [{"name": "note", "arguments": json.dumps({"text": text, "line": 1})}]
        return EvaluationInput.model_validate(
            {"response": "Noted.", "cost": 0.1, "durationS": 1, "toolCalls": calls}
        )

    def tool(**terms: Any) -> ToolUsage:
        return ToolUsage.load(
            {"rules": [{"criterion_name": "tool", "expected_tool_name": "note", **terms}]}
        )

    chance = random.Random(11)
    terms = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(4, 10))) for _ in range(9_900)]
    terms += [f"{term} {other}" for term, other in itertools.pairwise(terms[:100])] + ["Paris"]
    row = {
        "type": "object",
        "required": ["id"],
        "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
    }
    toxic: dict[str, Any] = {"criterion_name": "toxicity", "toxic_terms": terms}
    return {
        "ResponseHealth": (ResponseHealth(), answer),
        "RuleBased, length": (rule(type="length", min=10), answer),
        "RuleBased, regex": (rule(type="regex", pattern=r"\b(19|20)\d\d\b"), answer),
        "RuleBased, includes, 5 keywords": (rule(type="includes", keywords=KEYWORDS), answer),
        "RuleBased, keyword_count, 5 keywords": (
            rule(type="keyword_count", keywords=KEYWORDS, max=10_000),
            answer,
        ),
        "RuleBased, json": (rule(type="json"), table),
        "RuleBased, json and a schema": (
            rule(type="json", definition={"type": "array", "items": row}),
            table,
        ),
        "KeywordCoverage, 5 keywords": (
            KeywordCoverage(expected_keywords=KEYWORDS, criterion_name="coverage"),
            answer,
        ),
        "LexicalSimilarity, sorensen-dice": (
            LexicalSimilarity(criterion_name="similar"),
            with_reference,
        ),
        "LexicalSimilarity, levenshtein": (
            LexicalSimilarity(criterion_name="similar", algorithm="levenshtein"),
            with_reference,
        ),
        "LexicalSimilarity, levenshtein, 4,000 characters": (
            LexicalSimilarity(
                criterion_name="similar", algorithm="levenshtein", max_characters=4_000
            ),
            with_reference,
        ),
        "LexicalSimilarity, jaro-winkler": (
            LexicalSimilarity(criterion_name="similar", algorithm="jaro-winkler"),
            with_reference,
        ),
        "Sentiment, builtin": (Sentiment(criterion_name="sentiment"), answer),
        "Sentiment, as the original": (
            Sentiment(criterion_name="sentiment", lexicon="afinn", agentdock_tokens=True),
            answer,
        ),
        "LLMJudge, without the judge": (
            LLMJudge(criterion_name="judged", judge=_at_once),
            with_reference,
        ),
        "NLPAccuracy, hashing": (NLPAccuracy(criterion_name="accuracy"), with_reference),
        "ExactMatch": (ExactMatch(), with_reference),
        "Contains, 5 substrings": (Contains(substrings=KEYWORDS), answer),
        "CostWithin": (CostWithin(max_cost_usd=0.01), called),
        "CompletedWithin": (CompletedWithin(limit_s=2.0), called),
        "ToolUsage, argument_checks": (
            tool(argument_checks={"text": {"type": "string", "pattern": "Paris"}}),
            called,
        ),
        "ToolUsage, arguments_schema": (
            tool(arguments_schema=row | {"required": ["text"]}),
            called,
        ),
        "ToolUse, arguments_contain": (
            ToolUse(expectations=[{"name": "note", "arguments_contain": "Paris"}]),
            called,
        ),
        "Toxicity, 20 terms": (Toxicity(criterion_name="toxicity", toxic_terms=terms[:20]), answer),
        "Toxicity, 10,000 terms": (Toxicity(**toxic), answer),
        "Toxicity, 10,000 terms, parts of words": (
            Toxicity(**toxic, match_whole_word=False),
            answer,
        ),
    }
