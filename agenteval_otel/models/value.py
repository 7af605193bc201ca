"""Value: what every frozen value has in common."""

from __future__ import annotations

from functools import cached_property

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

__all__ = ["Value"]


class Value(BaseModel):
    """A frozen value: snake_case in Python, camelCase in JSON (accepted and, by alias, written)."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, validate_by_name=True, validate_by_alias=True,
        ignored_types=(cached_property,), ser_json_inf_nan="null",
    )  # fmt: skip
