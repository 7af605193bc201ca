"""Reads a settings file: YAML, TOML or JSON, by its suffix, with limits of size and depth."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from agenteval_otel.config.tree import MAX_DEPTH, MAX_VALUES, Items, Section
from agenteval_otel.errors import ConfigurationError

_TAG = "tag:yaml.org,2002:"


class _Error(yaml.MarkedYAMLError):
    def __init__(self, problem: str, mark: Any) -> None:
        super().__init__(problem=problem, problem_mark=mark)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}
    depth = values = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if (tag := getattr(event, "tag", None)) is not None:
            raise _Error(f"tags are not allowed, found {tag[:40]!r}", event.start_mark)
        self.depth, self.values = self.depth + 1, self.values + 1
        if self.depth > 2 * MAX_DEPTH:  # `read_file` checks the exact limit
            raise _Error(f"nested deeper than {MAX_DEPTH} levels", event.start_mark)
        if self.values > MAX_VALUES:
            raise _Error(f"more than {MAX_VALUES} values", event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


for _kind, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]{1,4000}", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(rf"^(?:{_pattern})$"), list(_first))


def load_yaml(text: str, name: str) -> Any:
    """The document's value, as `Section`, `Items` and scalars with their lines; None when it is empty.

    Raises:
        ConfigurationError: Not YAML, a tag, a key twice or no text, or nested too deeply; with the line.
    """
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        return None if node is None else _Converter(name).value(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark is not None else name
        context = f" ({error.context})" if error.context else ""
        raise ConfigurationError(f"{error.problem or 'not YAML'}{context}", path=where) from None
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise ConfigurationError(f"not YAML: {str(error).splitlines()[0][:200]}", path=name) from None


_OPEN = object()


class _Converter:
    """Nodes to values. An alias is the value of its anchor, not a copy."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._values: dict[Node, Any] = {}

    def value(self, node: Node) -> Any:
        if node not in self._values:
            self._values[node] = _OPEN
            self._values[node] = self._convert(node)
        if self._values[node] is _OPEN:
            raise _Error("an alias is inside of its own anchor", node.start_mark)
        return self._values[node]

    def _convert(self, node: Node) -> Any:
        if isinstance(node, MappingNode):
            return self._section(node)
        if isinstance(node, SequenceNode):
            return Items(map(self.value, node.value), map(self._line, node.value))
        text = str(node.value)
        match node.tag.removeprefix(_TAG):
            case "bool":
                return text.lower() == "true"
            case "null":
                return None
            case "int":
                return int(text)
            case "float":
                number = float(text)
                return number if math.isfinite(number) else text
            case _:
                return text

    def _section(self, node: MappingNode) -> Section:
        section = Section()
        merged: list[Node] = []
        for key, value in node.value:
            if key.tag == f"{_TAG}merge":
                merged += value.value if isinstance(value, SequenceNode) else [value]
                continue
            if not isinstance(key, ScalarNode) or key.tag != f"{_TAG}str" or not key.value:
                hint = f"; write '{key.value}'" if isinstance(key, ScalarNode) and key.value else ""
                raise _Error(f"a key must be text{hint}", key.start_mark)
            if key.value in section:
                first = section.origins[key.value].rpartition(":")[2]
                raise _Error(f"the key {key.value[:40]!r} is here and in line {first}", key.start_mark)
            section.put(key.value, self.value(value), self._line(key))
        for base_node in merged:
            base = self.value(base_node)
            if not isinstance(base, Section):
                raise _Error("'<<' takes mappings", base_node.start_mark)
            for key in base.keys() - section.keys():
                section.put(key, base[key], base.origins[key])
        return section

    def _line(self, node: Node) -> str:
        return f"{self._name}:{node.start_mark.line + 1}"


MAX_BYTES = 256 * 1024
_LINE = re.compile(r" \(at line (\d+), column \d+\)")
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{2 * MAX_DEPTH}}}")
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_file(path: str | os.PathLike[str]) -> Section:
    """The file's mapping, each value with its origin (with the line, in YAML). Blocks for the file system.

    Raises:
        ConfigurationError: Missing, not readable, too large, not of its format, empty, no mapping, or nested too
            deeply; the path is the file with its line.
    """
    file = Path(path)
    loader = _LOADERS.get(file.suffix.lower())
    if loader is None:
        raise ConfigurationError(f"expected a file that ends in {', '.join(_LOADERS)}", path=str(file))
    text = _text_of(file)
    try:
        document = loader(text, file.name)
    except RecursionError:
        raise ConfigurationError(f"nested deeper than {MAX_DEPTH} levels", path=file.name) from None
    if document is None:
        raise ConfigurationError("the file is empty; settings that change nothing are {}", path=file.name)
    if not isinstance(document, Section):
        raise ConfigurationError(f"expected a mapping of settings, found {_kind_of(document)}", path=file.name)
    _check_size(document, file.name)
    return document


def _text_of(file: Path) -> str:
    try:
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise ConfigurationError("expected a regular file", path=str(file))  # opening a pipe would wait
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror or error}", path=str(file)) from None
    except ValueError:  # a NUL in the path
        raise ConfigurationError("is not a path", path=repr(file)) from None
    if len(content) > MAX_BYTES:
        raise ConfigurationError(f"too large, at most {MAX_BYTES} bytes are read", path=str(file))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError("not UTF-8", path=f"{file.name}:{line}") from None


def _load_toml(text: str, name: str) -> Any:
    if _LONG_KEY.search(text):  # the parser takes a time that grows with the square of the length
        raise ConfigurationError(f"nested deeper than {MAX_DEPTH} levels", path=name)
    import tomllib

    try:
        document = tomllib.loads(text)
    except ValueError as error:
        line = _LINE.search(str(error))
        where = f"{name}:{line[1]}" if line else name
        raise ConfigurationError(f"not TOML: {_LINE.sub('', str(error))[:80]}", path=where) from None
    return _with_origins(document, name, 0) if document else None


def _load_json(text: str, name: str) -> Any:
    if not text.strip():
        return None
    try:
        document = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"not JSON: {error.msg}", path=f"{name}:{error.lineno}") from None
    except ValueError as error:
        raise ConfigurationError(f"not JSON: {str(error)[:80]}", path=name) from None
    return _with_origins(document, name, 0)


_LOADERS = {".yaml": load_yaml, ".yml": load_yaml, ".toml": _load_toml, ".json": _load_json}


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise ValueError(f"the key {key[:40]!r} appears twice")
        mapping[key] = value
    return mapping


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _with_origins(value: Any, name: str, depth: int) -> Any:
    """The same value with the file's name as its origin; dates and times as text, as in YAML."""
    if depth > 2 * MAX_DEPTH:
        raise RecursionError
    if isinstance(value, dict):
        section = Section()
        for key, item in value.items():
            if not key:
                raise ConfigurationError("a key is empty", path=name)
            section.put(key, _with_origins(item, name, depth + 1), name)
        return section
    if isinstance(value, list):
        return Items([_with_origins(item, name, depth + 1) for item in value], [name] * len(value))
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _check_size(document: Section, name: str) -> None:
    """Limit depth and number of values, so that later code may walk the tree freely."""
    level: list[Any] = [Items([document])]
    values = 0
    for _ in range(MAX_DEPTH + 2):
        level = [inner for value in level for inner in _inside(value)]
        values += len(level)
        texts = [text for value in level for text in (value if isinstance(value, Section) else [value])]
        if any(_SURROGATE.search(text) for text in texts if isinstance(text, str)):
            raise ConfigurationError("a text holds half of a character (a lone surrogate)", path=name)
        if values > MAX_VALUES:
            raise ConfigurationError(f"more than {MAX_VALUES} values", path=name)
        if not level:
            return
    raise ConfigurationError(f"nested deeper than {MAX_DEPTH} levels", path=name)


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, Section) else value if isinstance(value, Items) else ()


def _kind_of(value: Any) -> str:
    return "a list" if isinstance(value, Items) else f"{type(value).__name__} {str(value)[:40]!r}"
