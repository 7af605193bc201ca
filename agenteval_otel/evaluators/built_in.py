"""What the package's own evaluators share.

That is: texts of an input by their path, failed results, and files of settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, ConfigDict
from pydantic.alias_generators import to_camel

from agenteval_otel.errors import EvaluationError
from agenteval_otel.evaluators.base import CriterionEvaluator, failure_of
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, EvaluationResult, ScoreValue
from agenteval_otel.models.inputs import ROOTS, references_of

SHORT_LIST = 100
"""A search for so many terms takes microseconds: it runs inline."""
NESTED = ConfigDict(
    frozen=True,
    extra="forbid",
    alias_generator=to_camel,
    validate_by_name=True,
    validate_by_alias=True,
    loc_by_alias=False,
    ignored_types=(cached_property,),
    hide_input_in_errors=True,
    allow_inf_nan=False,
)
"""The `model_config` of settings inside an evaluator: rules, predicates, rubrics."""


def _known(value: str) -> str:
    if value and value.partition(".")[0] not in ROOTS:
        raise ValueError(
            "expected response, prompt, groundTruth or context, or a path below (context.<path>)"
        )
    return value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    return value


NotBlank = Annotated[str, AfterValidator(_not_blank)]
TextField = Annotated[str, AfterValidator(_known)]
"""The path of a text in the input, by the rules of `EvaluationInput.text_at`."""


class BuiltInEvaluator(CriterionEvaluator):
    """Turns an `EvaluationError` of `score` into a failed result, as AgentDock does.

    It is no run error.
    """

    def filler(self, criterion: EvaluationCriteria) -> ScoreValue:
        """Return the score that AgentDock writes into a failed result."""
        return 0

    def _failure_result(
        self, error: EvaluationError, criterion: EvaluationCriteria
    ) -> EvaluationResult:
        filler = self.filler(criterion)
        return failure_of(
            self, criterion.name, str(error), error_type=error.error_type, filler=filler
        )


def text_at(evaluation_input: EvaluationInput, field: str) -> str:
    """Return the text at a field. Raises `EvaluationError` (``missing_text``) without one."""
    text = evaluation_input.text_at(field)
    if text is None:
        raise EvaluationError(f"no text at {field}", error_type="missing_text")
    return text


def reference_texts(evaluation_input: EvaluationInput, field: str) -> list[str]:
    """Return the texts of the reference answers at a field, which may hold a list of them.

    The list is empty if there is no text.
    """
    text = evaluation_input.text_at(field)
    if text is not None:
        return [text]
    references = references_of(evaluation_input.value_at(field))
    return [reference for reference in references if isinstance(reference, str)]


def listed(items: Sequence[str], *, most: int = 20) -> str:
    """Join the items for a sentence: the first `most` of them, and how many more there are.

    Without items the text is ``none``.
    """
    shown = list(items[:most])
    more = len(items) - most
    if more > 0:
        shown.append(f"{more} more")
    return ", ".join(shown) or "none"


def read_text(path: str) -> str:
    """Read the text of a UTF-8 file that a setting names.

    Raises:
        ValueError: The message says what is wrong with the file.
    """
    try:
        return Path(path).expanduser().read_text("utf-8-sig")
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not UTF-8") from None
