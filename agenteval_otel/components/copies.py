"""Copies: nothing that was worked out of the old fields, or belongs to the original alone, goes along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pydantic import BaseModel as _Model
else:
    _Model = object

__all__ = ["BareCopies", "FreshCopies"]


class FreshCopies(_Model):
    """A model whose changed copies work out anew what it keeps in cached properties: bounds, criteria, its version."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy; as everywhere in pydantic, changes are not validated."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys() if update else ():
            del copied.__dict__[name]
        return copied


class BareCopies(_Model):
    """A model whose copies and pickles hold its fields alone: connections, guards and weights are its own."""

    def __copy__(self) -> Self:
        copied = super().__copy__()
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return super(BareCopies, self.__copy__()).__deepcopy__(memo)

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        fields = type(self).model_fields
        return {**state, "__dict__": {name: value for name, value in state["__dict__"].items() if name in fields}}
