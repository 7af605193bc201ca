"""The judges and embedders of evaluators: found wherever settings put them, and looked at before they are asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from agenteval_otel.components import Component
from agenteval_otel.runtime.log import log

_DEPTH = 8


def judges_of(part: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every judge in a part's fields, at any depth, with its place such as ``evaluators[0].judge``."""
    yield from _parts(part, path, _DEPTH, ("judge",))


def problems_of(part: Any, path: str) -> list[str]:
    """What keeps its judges and embedders from being asked, as far as that is seen now, with the setting's path."""
    models = _parts(part, path, _DEPTH, ("judge", "embedder"))
    return [f"{where}: {problem}" for where, model in models if (problem := model.config_problem()) is not None]


def log_problems(agent: str, evaluators: Iterable[Any]) -> None:
    """Log at start what keeps judges and embedders from being asked; never raises."""
    try:
        problems = problems_of(tuple(evaluators), "evaluators")
        if problems:
            log.warning("model_cannot_be_asked", part=agent, detail="; ".join(problems)[:1_000])
    except Exception:
        return


def _parts(value: Any, path: str, depth: int, contracts: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Component) and value.contract in contracts:
        yield path, value
    if depth <= 0:
        return
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _parts(value.__dict__.get(name), f"{path}.{name}" if path else name, depth - 1, contracts)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _parts(inner, f"{path}.{key}", depth - 1, contracts)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _parts(inner, f"{path}[{index}]", depth - 1, contracts)
