"""Copies with changes: nothing that was worked out of the old fields goes along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pydantic import BaseModel as _Model
else:
    _Model = object

__all__ = ["FreshCopies"]


class FreshCopies(_Model):
    """A model whose changed copies work out anew what it keeps in cached properties: bounds, criteria, its version."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy; as everywhere in pydantic, changes are not validated."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys() if update else ():
            del copied.__dict__[name]
        return copied
