"""Repetition and UnansweredQuestions: what is said again nearly word for word.

Repetition looks at the agent's answers, UnansweredQuestions at the user's questions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import Field

from agenteval_otel.errors import EvaluationSkipped
from agenteval_otel.evaluators.base import Execution
from agenteval_otel.evaluators.conversation.resolution import ConversationEvaluator
from agenteval_otel.evaluators.words import collapsed, folded
from agenteval_otel.models import EvaluationInput, Score
from agenteval_otel.runtime.text import brief

_GRAM = 4
_COMPARED_CHARACTERS = 4_000
_COMPARED_TEXTS = 50  # the newest before a text
_SENTENCES = re.compile("([.!?\n\u3002\uff01\uff1f\u061f])")
_QUESTION_MARKS = "?\uff1f\u061f"
_SHOWN = 80


def _grams(text: str) -> frozenset[str]:
    """Return the n-grams of four characters of a text's first 4,000, without case.

    Each run of whitespace counts as one space. A text shorter than an n-gram is the only n-gram.
    """
    text = collapsed(folded(text[:_COMPARED_CHARACTERS], case_sensitive=False))
    return frozenset(text[at : at + _GRAM] for at in range(max(1, len(text) - _GRAM + 1)))


def _alike(first: frozenset[str], other: frozenset[str], at_least: float) -> bool:
    """Tell whether Dice's measure (1945) is at least `at_least`.

    It is 2 x common / (distinct in the one + distinct in the other).
    """
    most = 2 * min(len(first), len(other))
    total = len(first) + len(other)
    return most >= at_least * total and 2 * len(first & other) >= at_least * total


class _Wording(ConversationEvaluator):
    similarity: float = Field(default=0.9, gt=0, le=1)
    min_characters: int = Field(default=20, ge=1)

    def preferred_execution(self) -> Execution | None:
        return None  # long conversations take milliseconds


class Repetition(_Wording, type="Repetition"):
    """Scores the share of answers that say something new: 1 - repeated / (answers - 1).

    1 is best. It passes if no answer repeats another one.

    An answer is repeated if it is nearly the same as one of the fifty before it: the sets of their
    n-grams of four characters have a Dice coefficient of at least `similarity`. Skipped with fewer
    than two answers that count.

    Attributes:
        similarity: Lowest similarity at which two answers count as the same, above 0 up to 1.
        min_characters: Shorter answers ("Yes.") are ignored.
    """

    criterion_name: str = "repetition"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        texts: list[tuple[int, str]] = []
        for number, turn in enumerate(self.turns(evaluation_input), 1):
            text = turn.response_text.strip()
            if len(text) >= self.min_characters:
                texts.append((number, text))
        if len(texts) < 2:
            raise EvaluationSkipped("fewer than two answers")
        known: list[frozenset[str]] = []
        repeated: list[int] = []
        for number, text in texts:
            grams = _grams(text)
            if any(_alike(grams, other, self.similarity) for other in known[-_COMPARED_TEXTS:]):
                repeated.append(number)
            known.append(grams)
        of = len(texts) - 1
        if not repeated:
            return Score(
                value=1.0,
                passed=True,
                reasoning=f"none of {len(texts)} answers repeats another one",
            )
        shown = ", ".join(map(str, repeated[:20]))
        count = f"{len(repeated)} of {of} answers"
        return Score(
            value=1.0 - len(repeated) / of,
            passed=False,
            reason_code="repeated_answer",
            reasoning=f"{count} repeat an earlier answer, in turns {shown}",
            metadata={"turns": repeated},
        )


class UnansweredQuestions(_Wording, type="UnansweredQuestions"):
    """Scores the share of the user's questions that were not repeated: 1 - repeated / questions.

    1 is best. A question is a sentence of the user's that ends with a question mark. If it is
    repeated nearly word for word after an answer, it was not answered. Similarity is measured as in
    `Repetition`. It passes if none is repeated. Skipped without a question.

    Attributes:
        similarity: Lowest similarity at which two questions count as the same, above 0 up to 1.
        min_characters: Shorter questions ("Really?") are ignored.
    """

    criterion_name: str = "unanswered_questions"
    similarity: float = Field(default=0.8, gt=0, le=1)
    min_characters: int = Field(default=12, ge=1)

    def score(self, evaluation_input: EvaluationInput) -> Score:
        questions: list[tuple[frozenset[str], str, int]] = []
        again: dict[int, int] = {}  # by the question's place the turn in which it was asked again
        answered: set[int] = set()
        for number, turn in enumerate(self.turns(evaluation_input), 1):
            for text in self._questions_of(turn.prompt or ""):
                grams = _grams(text)
                newest = range(max(0, len(questions) - _COMPARED_TEXTS), len(questions))
                same = next(
                    (at for at in newest if _alike(grams, questions[at][0], self.similarity)), None
                )
                if same is None:
                    questions.append((grams, text, number))
                elif questions[same][2] in answered:
                    again.setdefault(same, number)
            if turn.response_text:
                answered.add(number)
        if not questions:
            raise EvaluationSkipped("no questions")
        if not again:
            return Score(
                value=1.0,
                passed=True,
                reasoning=f"none of {len(questions)} questions was asked again",
            )
        first, turn_number = next(iter(again.items()))
        question = brief(questions[first][1], _SHOWN)
        count = f"{len(again)} of {len(questions)} questions"
        return Score(
            value=1.0 - len(again) / len(questions),
            passed=False,
            reason_code="asked_again",
            reasoning=f"{count} were asked again, in turn {turn_number}: {question}",
            metadata={"turns": sorted(set(again.values()))},
        )

    def _questions_of(self, text: str) -> Iterator[str]:
        parts = _SENTENCES.split(text)  # sentences, and between them what ended each
        for part, end in zip(parts[::2], parts[1::2], strict=False):
            sentence = part.strip()
            if end in _QUESTION_MARKS and len(sentence) >= self.min_characters:
                yield sentence
