"""What docstrings say of settings and of the fields of components: for the JSON Schema and the documents."""

from __future__ import annotations

import inspect
import re

from pydantic import BaseModel

__all__ = ["attributes_of", "summary_of"]

_SECTION = re.compile(r"^(?:Attributes|Args|Raises|Returns|Yields|Example|Examples):\s*$", re.MULTILINE)
_ENTRY = re.compile(r"^ {4}(\w[\w, ]*): (.*(?:\n {8,}.*)*)", re.MULTILINE)


def summary_of(model: type[BaseModel]) -> str:
    """The docstring up to its first section, each paragraph on one line."""
    text = _SECTION.split(inspect.cleandoc(model.__dict__.get("__doc__") or ""))[0]
    return "\n\n".join(_one_line(paragraph) for paragraph in text.strip().split("\n\n"))


def attributes_of(model: type[BaseModel]) -> dict[str, str]:
    """What the docstrings of the model and of those that it is made from say of each field."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        text = inspect.cleandoc(one.__dict__.get("__doc__") or "")
        _, _, after = text.partition("\nAttributes:\n")
        section = re.split(r"^\S", after, maxsplit=1, flags=re.MULTILINE)[0]
        for names, description in _ENTRY.findall(section):
            found |= {name.strip(): _one_line(description) for name in names.split(",")}
    return {name: text for name, text in found.items() if name in model.model_fields}


def _one_line(text: str) -> str:
    # Marks of the code's own documents (`name`, ``text``) read well as one kind of mark.
    return re.sub(r"\s+", " ", text).replace("``", "`").strip()
