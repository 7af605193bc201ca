"""Panels and rules that read names which are not emitted any more: they show nothing, silently."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from agenteval_otel import semconv
from agenteval_otel.provisioning.promql import label_name

_SUFFIXES: Final = (".json", ".yaml", ".yml")
_MAX_FILES: Final = 2_000
_MAX_BYTES: Final = 2_000_000
_KINDS: Final = {"title": "panel", "alert": "alert", "record": "rule", "name": "part"}
"""The keys that name a part of a dashboard or of a rule file, and what such a part is called."""


class FormerUse(NamedTuple):
    """A part of a file that reads a former name."""

    path: Path
    part: str
    former: str
    present: str

    def __str__(self) -> str:
        return f"{self.path}: {self.part} reads {self.former}, now {self.present}"


class _Rename(NamedTuple):
    former: str
    present: str
    only_with: str = ""
    """Another text that has to stand beside the name, where other libraries still emit it."""

    def is_read_by(self, text: str) -> bool:
        return self.only_with in text and re.search(rf"\b{self.former}\b", text) is not None


_OWN_RENAMES: Final = [
    _Rename(label_name(former), label_name(present))
    for former, present in semconv.FORMER_NAMES.items()
    if former.startswith("agenteval.")
]
_RENAMED_TOKEN_TYPE: Final = _Rename(
    label_name("gen_ai.token.type"),
    label_name(semconv.TOKEN_TYPE),
    only_with=semconv.METRIC_JUDGE_TOKENS.prometheus_name,
)
_RENAMES: Final = (*_OWN_RENAMES, _RENAMED_TOKEN_TYPE)


def former_uses(folder: Path) -> Iterator[FormerUse]:
    """Yield each panel, alert and rule below the folder that reads a former name.

    Reads dashboards (JSON) and rules (YAML), also those that were not generated, of at most 2,000
    files of up to two megabytes each. It leaves out all others.
    """
    candidates = (path for path in folder.rglob("*") if path.suffix in _SUFFIXES)
    for path in sorted(islice(candidates, _MAX_FILES)):
        try:
            uses = dict.fromkeys(_uses_in(path, _tree_of(path), "the file", set()))
        except RecursionError:  # no dashboard is that deep
            continue
        yield from uses


def _tree_of(path: Path) -> Any:
    """Return what the file holds if it has a former name.

    The result is None for what is no JSON or YAML, or is too large, and for a file without a former
    name.
    """
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return None
        text = path.read_text(encoding="utf-8")
        if not any(rename.former in text for rename in _RENAMES):
            return None
        return json.loads(text) if path.suffix == ".json" else list(yaml.safe_load_all(text))
    except Exception:  # YAML's constructors raise anything for a value that its tag does not fit
        return None


def _uses_in(path: Path, tree: object, part: str, seen: set[int]) -> Iterator[FormerUse]:
    """Yield the uses below a value. `seen` ends the loops that YAML's aliases can make."""
    if isinstance(tree, str):
        for rename in _RENAMES:
            if rename.is_read_by(tree):
                yield FormerUse(path, part, rename.former, rename.present)
        return
    if not isinstance(tree, dict | list) or id(tree) in seen:
        return
    seen.add(id(tree))
    values = tree
    if isinstance(tree, dict):
        part = _name_of(tree) or part
        values = [*tree.keys(), *tree.values()]
    for value in values:
        yield from _uses_in(path, value, part, seen)


def _name_of(tree: dict[Any, Any]) -> str | None:
    for key, kind in _KINDS.items():
        name = tree.get(key)
        if isinstance(name, str) and name:
            return f"{kind} {name!r}"
    return None
