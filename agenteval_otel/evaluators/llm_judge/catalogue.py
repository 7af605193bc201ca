"""The catalogue: criteria with rubrics of our own, one YAML file each in ``evaluators/catalogue``.

A file is read when its criterion is first used. It has the fields of a `Rubric`, and beside them ``group`` and
``direction`` for readers, and ``tags`` for runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from agenteval_otel.components.explained import known_choices
from agenteval_otel.errors import ConfigurationError

_FILES = Path(__file__).parents[1] / "catalogue"
_SCALES = {"pass/fail": ("pass/fail", "numeric"), "numeric": ("numeric", "likert5"), "likert5": ("likert5", "numeric")}


def names() -> tuple[str, ...]:
    """The criteria of the catalogue, in alphabetical order."""
    return tuple(sorted(file.stem.title().replace("_", "") for file in _FILES.glob("*.yaml")))


@lru_cache(maxsize=64)
def entry_of(name: str) -> Mapping[str, Any]:
    """The content of a criterion's file; not to be changed. ConfigurationError names the criteria that there are."""
    if name not in names():
        raise ConfigurationError(f"{name!r} is no criterion of the catalogue{known_choices(name, names())}")
    import yaml

    text = (_FILES / f"{re.sub('(?<=[a-z])(?=[A-Z])', '_', name).lower()}.yaml").read_text("utf-8")
    entry: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return entry


def scales_of(name: str) -> tuple[str, ...]:
    """The scales that a criterion can be scored on, its own first; ``numeric`` is its form from 0 to 1."""
    return _SCALES[entry_of(name)["scale"]]


def rubric_fields(name: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a criterion's `Rubric`, some of them overridden.

    The catalogue's threshold moves along with the scale: 4 from 1 to 5 is 0.75 from 0 to 1.
    """
    entry = {field: value for field, value in entry_of(name).items() if field not in ("group", "direction", "tags")}
    scale = overrides.get("scale") or entry["scale"]
    if scale not in scales_of(name):
        raise ConfigurationError(f"{name} is given on {' or '.join(scales_of(name))}, found {scale!r}", path="scale")
    low, high = _ends_of(scale)
    try:
        threshold = float(overrides.get("threshold", low))
    except (TypeError, ValueError):  # the rubric itself refuses it
        threshold = low
    if not low <= threshold <= high:
        message = f"{name} goes from {low} to {high} on the scale {scale}, found {threshold:g}"
        raise ConfigurationError(message, path="threshold")
    if scale != entry["scale"]:
        own_low, own_high = _ends_of(entry["scale"])
        share = (entry.get("threshold", 1) - own_low) / (own_high - own_low)
        entry["threshold"] = low + share * (high - low)
    return {**entry, "criterion_name": name, **overrides, "scale": scale}


def _ends_of(scale: str) -> tuple[int, int]:
    return (1, 5) if scale == "likert5" else (0, 1)
