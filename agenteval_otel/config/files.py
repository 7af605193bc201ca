"""Reads a settings file: YAML, TOML or JSON, by its suffix, with limits of size and depth."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from agenteval_otel.config.tree import MAX_DEPTH, MAX_VALUES, Tree, path_of, paths_of
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators.compat.agentdock import AGENT_ID, BLOCK, ENTRIES
from agenteval_otel.runtime.text import without_duplicates

MAX_BYTES = 256 * 1024
_WORDS = {
    "true": True, "True": True, "TRUE": True,
    "false": False, "False": False, "FALSE": False,
    "null": None, "Null": None, "NULL": None,
    "~": None, "": None,
}  # fmt: skip
_INT = re.compile(r"[-+]?[0-9]{1,4000}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LINE = re.compile(r" \(at line (\d+), column \d+\)")
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{2 * MAX_DEPTH}}}")
_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
_TOO_MANY = f"more than {MAX_VALUES} values"


class _Error(yaml.MarkedYAMLError):
    def __init__(self, problem: str, node: Any) -> None:
        super().__init__(problem=problem, problem_mark=node.start_mark)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}
    depth = 0
    nodes = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if (tag := getattr(event, "tag", None)) is not None:
            raise _Error(f"tags are not allowed, found {tag[:40]!r}", event)
        self.depth += 1
        self.nodes += 1
        if self.depth > 2 * MAX_DEPTH:  # `_Converter` checks the exact limit
            raise _Error(_TOO_DEEP, event)
        if self.nodes > 2 * MAX_VALUES:
            raise _Error(_TOO_MANY, event)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def load_yaml(text: str, name: str) -> tuple[Any, dict[str, str]]:
    """Return the document's value (None when it is empty), and its origins as in `Tree`.

    Errors have the line.
    """
    try:
        node = _Loader(text).get_single_node()
        converter = _Converter(name)
        value = None if node is None else converter.value(node)
        return value, converter.origins
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark is not None else name
        context = f" ({error.context})" if error.context else ""
        raise ConfigurationError(f"{error.problem or 'not YAML'}{context}", path=where) from None
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise ConfigurationError(
            f"not YAML: {str(error).splitlines()[0][:200]}", path=name
        ) from None


class _Converter:
    """Converts nodes to values. An alias is converted again for each use, and counted."""

    def __init__(self, name: str) -> None:
        self.origins: dict[str, str] = {}
        self._name = name
        self._count = 0

    def value(self, node: Node, path: str = "", outer: tuple[Node, ...] = ()) -> Any:
        self._count += 1
        if node in outer:
            raise _Error("an alias is inside of its own anchor", node)
        if len(outer) > MAX_DEPTH:
            raise _Error(_TOO_DEEP, node)
        if self._count > MAX_VALUES:
            raise _Error(_TOO_MANY, node)
        if isinstance(node, SequenceNode):
            return [
                self._entry(item, item, path_of(path, i), (*outer, node))
                for i, item in enumerate(node.value)
            ]
        if isinstance(node, MappingNode):
            return self._mapping(node, path, (*outer, node))
        return _scalar(node)

    def _entry(self, where: Node, node: Node, path: str, outer: tuple[Node, ...]) -> Any:
        """Return the value of `node`, and note the line of `where` as its origin."""
        self.origins[path] = f"{self._name}:{where.start_mark.line + 1}"
        return self.value(node, path, outer)

    def _mapping(self, node: MappingNode, path: str, outer: tuple[Node, ...]) -> dict[str, Any]:
        bases: list[Node] = []
        for key, value in node.value:
            if _is_merge(key):
                bases += value.value if isinstance(value, SequenceNode) else [value]
        values: dict[str, Any] = {}
        for base in reversed(bases):
            if not isinstance(base, MappingNode):
                raise _Error("'<<' takes mappings", base)
            values |= self.value(base, path, outer)
        lines: dict[str, int] = {}
        for key, value in node.value:
            if _is_merge(key):
                continue
            is_text = isinstance(key, ScalarNode) and isinstance(_scalar(key), str)
            if not is_text or not key.value:
                hint = f". Write '{key.value}'" if isinstance(key, ScalarNode) and key.value else ""
                raise _Error(f"a key must be text{hint}", key)
            if key.value in lines:
                raise _Error(
                    f"the key {key.value[:40]!r} is here and in line {lines[key.value]}", key
                )
            lines[key.value] = key.start_mark.line + 1
            values[key.value] = self._entry(key, value, path_of(path, key.value), outer)
        return values


def _is_merge(key: Node) -> bool:
    return isinstance(key, ScalarNode) and key.value == "<<" and key.style is None


def _scalar(node: Node) -> Any:
    text = str(node.value)
    if not isinstance(node, ScalarNode) or node.style is not None:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text


def read_file(path: str | os.PathLike[str]) -> Tree:
    """Return the file's mapping, each value with its origin (with the line, in YAML).

    Blocks for the file system.

    Raises:
        ConfigurationError: Not readable, or not what settings can be. The path is the file, with
            its line if known.
    """
    file = Path(path)
    loader = _LOADERS.get(file.suffix.lower())
    if loader is None:
        if file.is_dir():
            raise ConfigurationError("is a folder. Expected a settings file", path=str(file))
        raise ConfigurationError(
            f"expected a file that ends in {', '.join(_LOADERS)}", path=str(file)
        )
    text = _text_of(file)
    name = file.name
    try:
        values, origins = loader(text, name)
    except RecursionError:
        raise ConfigurationError(_TOO_DEEP, path=name) from None
    if values is None:
        raise ConfigurationError(
            "the file is empty. Settings that change nothing are {}", path=name
        )
    if not isinstance(values, dict):
        kind = "a list"
        if not isinstance(values, list):
            kind = f"{type(values).__name__} {str(values)[:40]!r}"
        raise ConfigurationError(f"expected a mapping of settings, found {kind}", path=name)
    try:
        json.dumps(values, ensure_ascii=False).encode()
    except ValueError:
        message = "a text holds half of a character (a lone surrogate), or a number has thousands of digits"
        raise ConfigurationError(message, path=name) from None
    return _of_agent(Tree(values, origins), name)


def _of_agent(tree: Tree, name: str) -> Tree:
    """Return the block ``evaluation`` of an AgentDock agent's definition.

    Any other tree is returned as it is.

    The rest of a definition (nodes, prompts, chat settings) says nothing about evaluation.
    """
    if AGENT_ID not in tree.values:
        return tree
    block = tree.values.get(BLOCK)
    if block is None and any(name in tree.values for name in (ENTRIES, "evaluators")):
        return tree  # settings, in which `agentId` is an unknown field
    if block is None:
        raise ConfigurationError(
            f"the definition of an AgentDock agent without a block {BLOCK!r}, which says how it is evaluated",
            path=name,
        )
    if not isinstance(block, dict):
        wrong = f"expected a mapping, found {type(block).__name__}"
        raise ConfigurationError(f"{BLOCK}: {wrong}", path=tree.origin_of(BLOCK))
    if ENTRIES not in block and "evaluators" not in block:
        raise ConfigurationError(
            f"{BLOCK}.{ENTRIES}: required field is missing", path=tree.origin_of(BLOCK)
        )
    origins = tree.origins_below(BLOCK, "")
    origins.pop("", None)  # of the block itself: what is not in it has no place in the file
    return Tree(block, origins, BLOCK)


def _text_of(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # the latter for a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"cannot be read: {reason}", path=str(file)) from None
    if len(content) > MAX_BYTES:
        raise ConfigurationError(f"too large, at most {MAX_BYTES} bytes are read", path=str(file))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError("not UTF-8", path=f"{file.name}:{line}") from None


def _load_toml(text: str, name: str) -> tuple[Any, dict[str, str]]:
    if _LONG_KEY.search(text):  # the parser takes a time that grows with the square of the length
        raise ConfigurationError(_TOO_DEEP, path=name)
    import tomllib

    try:
        values = tomllib.loads(text)
    except ValueError as error:
        line = _LINE.search(str(error))
        where = f"{name}:{line[1]}" if line else name
        raise ConfigurationError(
            f"not TOML: {_LINE.sub('', str(error))[:80]}", path=where
        ) from None
    return _with_origins(values or None, name)  # None, as an empty file in YAML


def _load_json(text: str, name: str) -> tuple[Any, dict[str, str]]:
    if not text.strip():
        return None, {}
    try:
        values = json.loads(text, object_pairs_hook=without_duplicates)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"not JSON: {error.msg}", path=f"{name}:{error.lineno}") from None
    except ValueError as error:
        raise ConfigurationError(f"not JSON: {str(error)[:80]}", path=name) from None
    return _with_origins(values, name)


_LOADERS = {".yaml": load_yaml, ".yml": load_yaml, ".toml": _load_toml, ".json": _load_json}


def _with_origins(values: object, name: str) -> tuple[Any, dict[str, str]]:
    """Return the values with the file's name as their origin, within the limits."""
    values = _checked(values, name, 0)
    origins = dict.fromkeys(paths_of(values), name)
    if len(origins) > MAX_VALUES:
        raise ConfigurationError(_TOO_MANY, path=name)
    return values, origins


def _checked(value: object, name: str, depth: int) -> Any:
    """Return the value, with dates and times as text, as in YAML."""
    if depth > MAX_DEPTH:
        raise ConfigurationError(_TOO_DEEP, path=name)
    if isinstance(value, dict):
        if "" in value:
            raise ConfigurationError("a key is empty", path=name)
        return {key: _checked(item, name, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_checked(item, name, depth + 1) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
