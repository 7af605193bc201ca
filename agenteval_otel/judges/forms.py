"""Forms: the JSON Schema of an answer, as the providers' structured outputs take it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["in_words", "plain_form"]

_TAKEN: Final = frozenset(
    {"type", "properties", "required", "items", "enum", "const", "anyOf", "title", "description", "$defs", "$ref"}
)
_MAPPINGS: Final = ("properties", "$defs")


def plain_form(form: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with what constrained decoding knows: objects are closed, and limits of any kind are left out.

    Providers refuse a schema with the others. Whoever asked looks at the values anyway.
    """
    fields: dict[str, Any] = {}
    for name, value in form.items():
        if name in _MAPPINGS and isinstance(value, Mapping):
            fields[name] = {key: plain_form(inner) for key, inner in value.items()}
        elif name == "items" and isinstance(value, Mapping):
            fields[name] = plain_form(value)
        elif name == "anyOf":
            fields[name] = [plain_form(inner) for inner in value]
        elif name in _TAKEN:
            fields[name] = value
    if fields.get("type") == "object":
        fields["additionalProperties"] = False
    return fields


def in_words(system: str, form: Mapping[str, Any]) -> str:
    """The instruction with the form said at its end, for models whose provider cannot hold them to one."""
    request = f"Answer with one JSON object and nothing else. Its JSON Schema: {json.dumps(form, ensure_ascii=False)}"
    return f"{system}\n\n{request}" if system else request
