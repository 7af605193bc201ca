"""From the names and values of a dataset to an `EvaluationInput`.

Names are those of its fields, in snake_case or camelCase; what is written apart by spaces or hyphens is the same name.
Values in the cells of a CSV file are text, except where the field asks for a list or a mapping: there they are JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, NoReturn

from pydantic import ValidationError

from agenteval_otel.components import choices, explain_validation
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.models import EvaluationInput

__all__ = ["field_of", "input_of", "json_of", "values_of"]

# The columns of the specification's files with reference answers.
_OTHER_NAMES = {
    "userprompt": ("prompt",),
    "expectedoutput": ("ground_truth",),
    "category": ("metadata", "category"),
    "module": ("metadata", "module"),
}
_FIELDS = {name.replace("_", ""): name for name in EvaluationInput.model_fields}
_TYPOS = 0.85
"""From this likeness on an unknown name is taken for a misspelt one."""


@lru_cache(maxsize=1024)
def field_of(name: str) -> tuple[str, ...]:
    """The place of a named value: its field, and the keys within; an unknown name is a key of ``metadata``.

    Raises:
        ConfigurationError: The name is nearly that of a field.
    """
    root, *keys = name.strip().split(".")
    plain = root.lower().replace("_", "").replace("-", "").replace(" ", "")
    if plain in _FIELDS:
        return _FIELDS[plain], *keys
    if not keys and plain in _OTHER_NAMES:
        return _OTHER_NAMES[plain]
    near = get_close_matches(plain, [*_FIELDS, *_OTHER_NAMES], n=1, cutoff=_TYPOS)
    if near:
        known = sorted(EvaluationInput.model_fields)
        raise ConfigurationError(f"unknown field{choices(root, known)}; to keep it all the same: metadata.{root}",
                                 path=name.strip()[:80])  # fmt: skip
    return "metadata", name.strip()


def values_of(named: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of an input from values by their names.

    Raises:
        ConfigurationError: A name that is misspelt, or two for the same value.
    """
    fields: dict[str, Any] = {}
    said: dict[tuple[str, ...], str] = {}
    # Whole fields first: what single keys say is laid over them.
    for name, value in sorted(named, key=lambda pair: len(field_of(pair[0]))):
        place = field_of(name)
        if place in said:
            raise ConfigurationError(f"stands there twice, also as {said[place]!r}", path=name)
        said[place] = name
        _put(fields, place, value, name)
    return fields


def _put(fields: dict[str, Any], place: tuple[str, ...], value: Any, name: str) -> None:
    *above, last = place
    inner = fields
    for key in above:
        held = inner.get(key)
        if held is not None and not isinstance(held, Mapping):
            raise ConfigurationError(f"{key} is no mapping here, so it has no {last!r}", path=name)
        inner[key] = dict(held or {})
        inner = inner[key]
    inner[last] = value


def input_of(fields: Mapping[str, Any]) -> EvaluationInput:
    """The input of these fields.

    Raises:
        ConfigurationError: With everything that is wrong; an answer must be there, unless an `error_type` says why not.
    """
    if "response" not in fields and fields.get("error_type") is None:
        raise ConfigurationError(
            "is missing: the answer that is evaluated (or error_type, where the agent raised)", path="response"
        )
    try:
        return EvaluationInput.model_validate(dict(fields))
    except ValidationError as error:
        raise explain_validation(error, EvaluationInput) from None


def json_of(text: str) -> Any:
    """A value from its JSON text: strictly, without NaN, numbers beyond every float or a key that stands there twice.

    Half characters (lone surrogates) become question marks.

    Raises:
        ConfigurationError: It is none; with where in the text.
    """
    try:
        found = json.loads(text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_each_once)
        if "\\u" in text:
            whole = json.dumps(found, ensure_ascii=False)
            try:
                whole.encode()
            except UnicodeEncodeError:
                found = json.loads(whole.encode("utf-8", "replace"))
        return found
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ConfigurationError("not JSON that can be read: nested too deeply") from None
    except ValueError as error:
        raise ConfigurationError(f"not JSON: {str(error)[:80]}") from None


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        _refuse(text)
    return number


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:40]!r} stands there twice")
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")
