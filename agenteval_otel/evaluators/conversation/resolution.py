"""TurnsToResolution: how many turns a conversation took until it was resolved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from pydantic import Field, model_validator

from agenteval_otel.components import ListOf
from agenteval_otel.errors import EvaluationSkipped
from agenteval_otel.evaluators.base import Evaluates
from agenteval_otel.evaluators.built_in import NotBlank
from agenteval_otel.evaluators.operational import OperationalEvaluator
from agenteval_otel.evaluators.tools.calls import has_failed
from agenteval_otel.evaluators.words import folded
from agenteval_otel.models import EvaluationInput, Score


class ConversationEvaluator(OperationalEvaluator):
    """Sees whole conversations, also one whose last turn raised.

    Skipped if the input is one answer.
    """

    evaluates_errors: ClassVar[bool] = True

    evaluates: Evaluates = "conversation"

    def turns(self, evaluation_input: EvaluationInput) -> Sequence[EvaluationInput]:
        if evaluation_input.conversation is None:
            raise EvaluationSkipped("no conversation")
        return evaluation_input.conversation


class TurnsToResolution(ConversationEvaluator, type="TurnsToResolution"):
    """Scores 1 for a conversation resolved within `max_turns`, else max_turns / turns.

    A conversation passes if it is resolved within `max_turns`, and scores 0 if it was never
    resolved. Turns are counted up to the first one with a sign of resolution. Their number is
    ``turns`` in the metadata. The fields below define the signs of resolution. At least one is
    required.

    Attributes:
        max_turns: Up to this many turns score 1.
        tools: A successful call of one of these tools resolves the conversation.
        phrases: An answer that contains one of these phrases resolves it. Case is ignored.
        user_phrases: A user's message that contains one of these phrases shows that the turn before
            resolved it.
        end_mark: ``annotate(conversation_ends=True)`` resolves it.
    """

    criterion_name: str = "turns_to_resolution"
    max_turns: int = Field(ge=1)
    tools: ListOf[str] = ()
    phrases: ListOf[NotBlank] = ()
    user_phrases: ListOf[NotBlank] = ()
    end_mark: bool = False

    @model_validator(mode="after")
    def _has_a_sign(self) -> Self:
        if not (self.tools or self.phrases or self.user_phrases or self.end_mark):
            raise ValueError(
                "nothing says what resolves a conversation: give tools, phrases, user_phrases or end_mark"
            )
        return self

    def score(self, evaluation_input: EvaluationInput) -> Score:
        turns = self.turns(evaluation_input)
        resolved = self._resolved_in(turns)
        if resolved is None:
            reasoning = f"no sign of resolution in {len(turns)} turns"
            return Score(value=0.0, passed=False, reason_code="not_resolved", reasoning=reasoning)
        number, sign = resolved
        passed = number <= self.max_turns
        reasoning = f"resolved in turn {number}, by {sign}"
        return Score(
            value=1.0 if passed else self.max_turns / number,
            passed=passed,
            metadata={"turns": number},
            reason_code=None if passed else "too_many_turns",
            reasoning=reasoning,
        )

    def _resolved_in(self, turns: Sequence[EvaluationInput]) -> tuple[int, str] | None:
        for number, turn in enumerate(turns, 1):
            if number > 1:
                users_phrase = _first_in(turn.prompt, self.user_phrases)
                if users_phrase is not None:
                    return number - 1, f"the user's {users_phrase!r}"
            for call in turn.tool_calls or ():
                if call.name in self.tools and not has_failed(call):
                    return number, f"a call of {call.name}"
            phrase = _first_in(turn.response_text, self.phrases)
            if phrase is not None:
                return number, f"the answer's {phrase!r}"
            if self.end_mark and turn.conversation_ends:
                return number, "the application's mark"
        return None


def _first_in(text: str | None, phrases: Sequence[str]) -> str | None:
    if not phrases:
        return None
    whole = folded(text or "", case_sensitive=False)
    for phrase in phrases:
        if folded(phrase, case_sensitive=False) in whole:
            return phrase
    return None
