"""Sampling by rule.

Rules match errors, slow answers, certain agents, and what a pattern or a function finds in the
answer.

What needs the content is decided on the background thread: every such call takes a place in the
queue.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from functools import cached_property
from typing import Annotated

from pydantic import AfterValidator, Field, field_validator, model_validator

from agenteval_otel.components import ListOf
from agenteval_otel.components.explained import suggestion
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationInput
from agenteval_otel.models.scoring.probability import SamplingDecision
from agenteval_otel.models.value import number_of
from agenteval_otel.runtime.patterns import check_flags, compile_pattern
from agenteval_otel.sampling.base import AnswerFacts, SamplingContext, threshold_of
from agenteval_otel.sampling.rule import RuleSampler
from agenteval_otel.semconv import ANNOTATIONS, CRITERION_NAME, FORMER_NAMES, TAG


class AgentSampler(RuleSampler, type="agent"):
    """Samples a share of certain agents' responses.

    Attributes:
        agents: Names, with ``*`` and ``?`` as wildcards. Upper and lower case differ.
    """

    agents: ListOf[str] = Field(min_length=1)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(map(fnmatch.translate, self.agents)))

    def matches(self, context: SamplingContext) -> bool:
        return self._pattern.match(context.agent) is not None


class ErrorSampler(RuleSampler, type="error"):
    """Samples a share of the calls that raised.

    Attributes:
        types: Class names of the exceptions that count, such as ``TimeoutError``. All of them when
            empty.
    """

    types: ListOf[str] = ()

    def matches(self, context: SamplingContext) -> bool | None:
        answer = context.answer or _recorded(context)
        if answer is None:
            return None
        if answer.error_type is None:
            return False
        return not self.types or answer.error_type in self.types


class PatternSampler(RuleSampler, type="pattern"):
    """Samples a share of the responses in which a pattern occurs, on the background thread.

    Attributes:
        pattern: A regular expression, as in `RuleBased`, without looking around and without
            references to groups. With the extra ``re2`` most are searched in linear time. A search
            that takes longer than 0.1 s is stopped and counted, and the response is not evaluated.
        flags: Any of ``i``, ``m`` and ``s``.
        field: Where to look: ``response``, ``prompt``, or a path below ``context``.
    """

    pattern: str = Field(min_length=1)
    flags: Annotated[str, AfterValidator(check_flags)] = ""
    field: str = "response"

    @model_validator(mode="after")
    def _compiles(self) -> PatternSampler:
        try:
            compiled = compile_pattern(self.pattern, self.flags)
        except ValueError as error:
            raise ConfigurationError(f"{error}, found {self.pattern!r}", path="pattern") from error
        # it would be searched in the host's process, with every other response waiting
        if compiled.never_linear:
            expected = "expected a pattern without, or a FunctionSampler in its place"
            wrong = f"{compiled.obstacle} may take long on crafted text: {expected}, found {self.pattern!r}"
            raise ConfigurationError(wrong, path="pattern")
        return self

    def matches(self, context: SamplingContext) -> bool | None:
        if context.evaluation_input is None:
            return None
        text = context.evaluation_input.text_at(self.field)
        return text is not None and compile_pattern(self.pattern, self.flags).occurs_in(text)


class SlowSampler(RuleSampler, type="slow"):
    """Samples a share of the responses that took long.

    Attributes:
        above_s: Seconds from the call to its answer, or to the end of its stream, above which a
            response is slow.
    """

    above_s: float = Field(gt=0)

    def matches(self, context: SamplingContext) -> bool | None:
        answer = context.answer or _recorded(context)
        return None if answer is None else answer.duration_s > self.above_s


class AnnotationSampler(RuleSampler, type="annotation"):
    """Samples a share of the responses with a certain annotation, on the background thread.

    Attributes:
        name: ``gen_ai.prompt.name``, ``gen_ai.prompt.version``,
            ``deployment.environment.name``, ``user.id`` or the key of a tag.
        values: As spans have them (a user's id hashed), with ``*`` and ``?`` as wildcards. Upper
            and lower case differ.
    """

    name: str
    values: ListOf[str] = Field(min_length=1)

    @field_validator("name")
    @classmethod
    def _is_an_attribute(cls, value: str) -> str:
        return annotated_attribute(value, path="name")

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(map(fnmatch.translate, self.values)))

    def matches(self, context: SamplingContext) -> bool | None:
        if context.evaluation_input is None:
            return None
        value = context.evaluation_input.annotations.get(self.name)
        return value is not None and self._pattern.match(value) is not None


def annotated_attribute(name: str, *, path: str) -> str:
    """Return the attribute of an annotation.

    It is named by itself, by `annotate`'s keyword or by the key of a tag.

    Raises:
        ConfigurationError: The name is no slug, is so near to the name of another annotation that
            it is taken for a mistake, or begins with ``agenteval`` or ``gen_ai``.
    """
    by_keyword = ANNOTATIONS.get(name, name)
    attribute = FORMER_NAMES.get(name, by_keyword)
    if attribute in ANNOTATIONS.values():
        return attribute
    key = attribute.removeprefix(TAG)
    is_tag = key != attribute
    if is_tag and CRITERION_NAME.fullmatch(key):
        return attribute
    near = suggestion(name, [*ANNOTATIONS.values(), *ANNOTATIONS])
    is_slug = CRITERION_NAME.fullmatch(name) is not None
    namespace, _, _ = name.partition(".")
    if near or not is_slug or namespace in ("agenteval", "gen_ai"):
        known = f"Known: {', '.join(ANNOTATIONS.values())}, and the keys of tags"
        also = f" (a tag of this key: {TAG}{name})" if is_slug else ""
        raise ConfigurationError(f"no annotation {name!r}{near}. {known}{also}", path=path)
    return TAG + name


class FunctionSampler(RuleSampler, type="function"):
    """Samples by a function of the evaluation input, on the background thread.

    Attributes:
        function: Gives whether the response matches (then `ratio` holds) or the ratio itself, 0 to
            1. It must return soon: evaluations wait for it. What it raises is counted, and the
            response is not evaluated.
    """

    function: Callable[[EvaluationInput], bool | float] = Field(exclude=True)

    @property
    def least_probability(self) -> float | None:
        return None  # the function may return any ratio

    def decide(self, context: SamplingContext) -> SamplingDecision:
        is_in_share = context.randomness < self._threshold
        if context.evaluation_input is None:
            return self._decisions[None, is_in_share]
        returned: object = self.function(context.evaluation_input)
        number = number_of(returned)
        if isinstance(number, bool):
            return self._decisions[number, is_in_share]
        if number is None or not 0 <= number <= 1:
            wrong = f"expected a boolean or a ratio from 0 to 1, found {returned!r}"
            raise ConfigurationError(wrong[:200], path="function")
        ratio = float(number)
        return SamplingDecision(context.randomness < threshold_of(ratio), ratio, self.type)


def _recorded(context: SamplingContext) -> AnswerFacts | None:
    """Return the facts of an answer that was not captured here, such as a replayed one.

    They are those of its input. Return None if there is no input yet.
    """
    built = context.evaluation_input
    if built is None:
        return None
    return AnswerFacts(
        duration_s=built.duration_s or 0.0,
        error_type=built.error_type,
        stream_end=built.stream_end,
        conversation_id=built.conversation_id,
    )
