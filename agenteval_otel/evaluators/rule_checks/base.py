"""What the checks of a rule have in common: how they are loaded, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationInfo, model_validator
from pydantic.alias_generators import to_camel

__all__ = ["MANY", "Broken", "ReasonCode", "RuleModel", "Verdict", "is_original"]

MANY = 100
"""More keywords than this take longer than the pool's loop should."""

ReasonCode = Literal[
    "too_short", "too_long", "pattern_missing", "forbidden_pattern", "missing_keyword", "forbidden_keyword",
    "too_few_keywords", "too_many_keywords", "invalid_json", "schema_mismatch",
]  # fmt: skip


class Broken(NamedTuple):
    """Why a rule fails: a word of the closed list, and what a reader may want to know besides (content)."""

    reason: ReasonCode
    detail: str = ""


Verdict: TypeAlias = Broken | None
"""None when the rule passes."""


class RuleModel(BaseModel):
    """A rule, or a part of one: frozen, strict unless an original's configuration is loaded."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, validate_by_name=True, validate_by_alias=True,
        ignored_types=(cached_property,), allow_inf_nan=False,
    )  # fmt: skip

    @model_validator(mode="before")
    @classmethod
    def _originals_ignore_unknown_fields(cls, data: Any, info: ValidationInfo) -> Any:
        if not is_original(info) or not isinstance(data, Mapping):
            return data
        known = {name for field in cls.model_fields for name in (field, to_camel(field))}
        return {key: value for key, value in data.items() if key in known}

    @property
    def is_quick(self) -> bool:
        """Whether no text can make it take long."""
        return True


def is_original(info: ValidationInfo) -> bool:
    """Whether a configuration in the originals' form is loaded."""
    return bool(info.context and info.context.get("original"))
