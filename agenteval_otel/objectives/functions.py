"""Callbacks as settings name them: a function, or ``module:function``."""

from __future__ import annotations

import inspect
from typing import Any, cast

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators.imports import imported
from agenteval_otel.objectives.callbacks import Callback


def load_callback(value: Any, *, path: str) -> Callback | None:
    """The function itself, or the one that ``module:function`` names; None stays None. Imports the module.

    Raises:
        ConfigurationError: There is none, or it cannot be called with one argument; with the path.
    """
    if value is None:
        return None
    function: Any = _imported(value, path) if isinstance(value, str) else value
    if not callable(function):
        raise ConfigurationError(
            f"expected a function or 'module:function', found {type(function).__name__}", path=path
        )
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise ConfigurationError("expected a function that takes one argument, the crossing", path=path) from None
    except ValueError:  # one that is written in C does not say
        pass
    return cast(Callback, function)


def _imported(name: str, path: str) -> Any:
    module, colon, function = name.strip().partition(":")
    if not colon or not module or not function:
        raise ConfigurationError(f"expected 'module:function', found {name[:80]!r}", path=path)
    try:
        return imported(module, function)
    except (Exception, SystemExit) as error:
        found = str(error).replace("\n", " ")[:200]
        raise ConfigurationError(
            f"{name[:80]!r} cannot be imported: {type(error).__name__}: {found}", path=path
        ) from error
