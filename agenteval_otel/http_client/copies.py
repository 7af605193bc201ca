"""Copies: of a part with connections only its settings are copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pydantic import BaseModel as _Model
else:
    _Model = object

__all__ = ["BareCopies"]


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
