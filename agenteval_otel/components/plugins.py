"""Plugins: modules and entry points that settings name, imported before their parts are looked up.

Importing runs the plugin's code, with the process's rights; so nothing is imported that is not listed.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib import metadata

from agenteval_otel.components import load_each
from agenteval_otel.errors import ConfigurationError

__all__ = ["import_plugins"]

_GROUP = "agenteval_otel."


def import_plugins(names: Sequence[str]) -> None:
    """Import each: the entry point of that name in one of our groups, else the module.

    Raises:
        ConfigurationError: Neither is there, or it broke while it was imported; with ``plugins[<index>]`` as path.
    """
    load_each(_import, names, path="plugins")


def _import(name: str, path: str) -> None:
    points = [point for point in metadata.entry_points(name=name) if point.group.startswith(_GROUP)]
    try:
        for point in points:
            point.load()
        if not points:
            importlib.import_module(name)
    except (Exception, SystemExit) as error:
        text = str(error).replace("\n", " ")[:200]
        raise ConfigurationError(
            f"{name!r} cannot be imported, neither as an entry point nor as a module: {type(error).__name__}: {text}",
            path=path,
        ) from error
