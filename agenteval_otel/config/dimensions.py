"""The metric dimensions of the settings.

They are the annotations that metrics have, and how many values of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.semconv import MAX_DIMENSION_VALUES, USER_ID


def load_dimensions(values: object) -> Any:
    """Return the number of values of each dimension, by its attribute."""
    expected = "expected a list of names, or a mapping of names to how many values each may have"
    if not isinstance(values, list | tuple | Mapping):
        raise ConfigurationError(expected, path="metric_dimensions")
    if not all(isinstance(name, str) for name in values):
        raise ConfigurationError(expected, path="metric_dimensions")
    limits = values if isinstance(values, Mapping) else dict.fromkeys(values, MAX_DIMENSION_VALUES)
    from agenteval_otel.sampling.rules import annotated_attribute  # few settings have dimensions

    loaded: dict[str, Any] = {}
    problems: list[tuple[str | None, str]] = []
    for name, limit in limits.items():
        try:
            attribute = annotated_attribute(name, path="metric_dimensions")
        except ConfigurationError as failure:
            problems += failure.problems
            continue
        loaded[attribute] = limit
        if attribute == USER_ID:
            problems.append(("metric_dimensions", f"{name}: an id of users makes a series of each"))
        elif isinstance(limit, bool):
            problems.append(("metric_dimensions", f"{name}: expected a number: {limit}"))
    if problems:
        raise ConfigurationError.of(problems)
    return loaded
