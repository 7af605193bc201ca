"""The catalogue: criteria with rubrics of our own, one readable file each beside this one.

A file is read when its criterion is first used, so that nobody pays for those that he does not use. It holds the fields
of a `Rubric`, and beside them ``group`` and ``direction`` for readers, and ``tags`` for runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from agenteval_otel.components import choices
from agenteval_otel.errors import ConfigurationError

__all__ = ["entry_of", "names", "rubric_fields", "scales_of"]

_HERE = Path(__file__).parent
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")
_FOR_READERS = ("group", "direction", "tags")


def names() -> tuple[str, ...]:
    """The criteria that there are, by the alphabet."""
    return tuple(sorted(file.stem.title().replace("_", "") for file in _HERE.glob("*.yaml")))


@lru_cache(maxsize=64)
def entry_of(name: str) -> Mapping[str, Any]:
    """What the file of a criterion says; not to be changed. Reads it the first time.

    Raises:
        ConfigurationError: There is no such criterion; the message names those that there are.
    """
    if name not in names():
        raise ConfigurationError(f"{name!r} is no criterion of the catalogue{choices(name, names())}")
    import yaml

    text = (_HERE / f"{_WORDS.sub('_', name).lower()}.yaml").read_text("utf-8")
    entry: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return entry


def scales_of(name: str) -> tuple[str, ...]:
    """The scales that a criterion can be given on, its own first; ``numeric`` is its form from 0 to 1."""
    scale = entry_of(name)["scale"]
    return {"pass/fail": ("pass/fail", "numeric"), "numeric": ("numeric", "likert5")}.get(scale, (scale, "numeric"))


def rubric_fields(name: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a criterion's `Rubric`, with what is given in the place of the catalogue's.

    A threshold that is not given moves along with the scale: 4 from 1 to 5 is 0.75 from 0 to 1.

    Raises:
        ConfigurationError: There is no such criterion, it is not given on that scale, or the threshold is beyond it.
    """
    entry = {field: value for field, value in entry_of(name).items() if field not in _FOR_READERS}
    own, scale = entry["scale"], overrides.get("scale") or entry["scale"]
    if scale not in scales_of(name):
        raise ConfigurationError(f"{name} is given on {' or '.join(scales_of(name))}, found {scale!r}", path="scale")
    threshold = _number_of(overrides.get("threshold"))
    low, high = _ENDS.get(scale, (0, 1))
    if threshold is not None and not low <= threshold <= high:
        message = f"{name} goes from {low} to {high} on the scale {scale}, found {threshold:g}"
        raise ConfigurationError(message, path="threshold")
    if scale != own:
        entry["threshold"] = _moved(entry.get("threshold", 1), own, scale)
    return {**entry, "criterion_name": name, **overrides, "scale": scale}


_ENDS = {"likert5": (1, 5)}


def _number_of(value: Any) -> float | None:
    """The number, also as text, as variables say it; None for what the rubric itself will refuse."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _moved(threshold: float, own: str, scale: str) -> float:
    share = (threshold - 1) / 4 if own == "likert5" else threshold
    return 1 + 4 * share if scale == "likert5" else share
