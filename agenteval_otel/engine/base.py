"""RunModel: what people write down of a run, whichever way it runs; what is wrong with it is said by its place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from pydantic.alias_generators import to_camel

from agenteval_otel.components import Explained, explain_validation
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationInput
from agenteval_otel.redaction import load_redactors

__all__ = ["Done", "RunModel", "expect_input"]

Done = Callable[[Any, "str | Awaitable[str]"], None]
"""Takes a call with its outcome, or with what gives it later."""


class RunModel(BaseModel, metaclass=Explained):
    """A frozen model that knows all its fields, in snake_case and in camelCase.

    Raises:
        ConfigurationError: With the path of what is wrong, however it is built.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, alias_generator=to_camel, validate_by_name=True,
        validate_by_alias=True, loc_by_alias=False, hide_input_in_errors=True, ignored_types=(cached_property,),
    )  # fmt: skip

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """As pydantic's, with what is wrong explained by its path."""
        try:
            return super().model_validate(obj, **options)
        except ValidationError as error:
            raise explain_validation(error, cls) from None

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """As pydantic's, with what is wrong explained by its path."""
        try:
            return super().model_validate_json(json_data, **options)
        except ValidationError as error:
            raise explain_validation(error, cls) from None

    @field_validator("redactors", mode="before", check_fields=False)
    @classmethod
    def _load_redactors(cls, value: Any) -> Any:
        return load_redactors(value, path="redactors")


def expect_input(value: Any) -> None:
    """Raise ConfigurationError for what is no `EvaluationInput`."""
    if not isinstance(value, EvaluationInput):
        raise ConfigurationError(f"expected an EvaluationInput, found {type(value).__name__}")
