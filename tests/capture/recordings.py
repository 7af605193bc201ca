"""Recordings of what real libraries give: detached values as JSON, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from agenteval_otel.capture.detached import Detached

FOLDER: Final = Path(__file__).parent / "recorded"
_PLAIN: Final = (str, int, float, bool, type(None))
_AS_TEXT: Final[dict[str, Callable[[str], Any]]] = {
    "bytes": bytes.fromhex,
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
    "time": time.fromisoformat,
    "Decimal": Decimal,
    "UUID": UUID,
}


@dataclass(frozen=True)
class Form:
    """What a handler gives in one form, and the facts that have to be read of it.

    Attributes:
        value: The answer, or the list of the stream's chunks.
        facts: Text, calls (name, arguments, result), tokens, model, finish reason.
    """

    value: Any
    is_stream: bool
    facts: list[Any]


@dataclass(frozen=True)
class Recording:
    """One file: the client as the documentation names it, the versions, and the forms."""

    client: str
    libraries: dict[str, str]
    forms: dict[str, Form]


def load(path: Path) -> Recording:
    """Return a recording with its values detached as they were."""
    recorded = json.loads(path.read_text())
    forms = {}
    for name, form in recorded["forms"].items():
        is_stream = "chunks" in form
        value = form["chunks"] if is_stream else form["answer"]
        forms[name] = Form(from_json(value), is_stream, form["facts"])
    return Recording(recorded["client"], recorded["libraries"], forms)


def to_json(value: Any, above: tuple[int, ...] = ()) -> Any:
    """Return a detached value as JSON; an object names its class beside its fields."""
    if isinstance(value, _PLAIN):
        return value
    name = type(value).__name__
    if name in _AS_TEXT:
        text = value.hex() if name == "bytes" else getattr(value, "isoformat", value.__str__)()
        return {"$value": name, "text": text}
    if id(value) in above:
        return None  # a circle
    above = (*above, id(value))
    if isinstance(value, list):
        return [to_json(item, above) for item in value]
    if isinstance(value, tuple):
        return {"$value": "tuple", "items": [to_json(item, above) for item in value]}
    fields = value.fields if type(value) is Detached else value
    as_json = {str(key): to_json(item, above) for key, item in fields.items()}
    if type(value) is not Detached:
        return as_json
    kind = f"{value.module}:{value.type_name}"
    return {"$object": kind, "is_data": value.is_data, "fields": as_json}


def from_json(value: Any) -> Any:
    """Return the detached value that `to_json` wrote."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$value" in value:
        kind = value["$value"]
        return (
            tuple(from_json(value["items"])) if kind == "tuple" else _AS_TEXT[kind](value["text"])
        )
    if "$object" in value:
        module, _, name = value["$object"].partition(":")
        return Detached(name, from_json(value["fields"]), value["is_data"], module)
    return {key: from_json(item) for key, item in value.items()}
