"""YAML settings: plain values with their lines, as YAML 1.2 reads them (``no``, ``off``, dates and ``12:30`` are text).

PyYAML scans, parses and composes; its constructors, which could build objects, are never called.
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from agenteval_otel.config.tree import MAX_DEPTH, MAX_VALUES, Items, Section
from agenteval_otel.errors import ConfigurationError

__all__ = ["load_yaml"]

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
        self._check_depth(self.depth)
        if self.values > MAX_VALUES:
            raise _Error(f"more than {MAX_VALUES} values", event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def fetch_flow_collection_start(self, token: Any) -> None:
        # The scanner looks ahead of the composer, in a time that grows with the square of the depth.
        self._check_depth(self.flow_level)
        super().fetch_flow_collection_start(token)

    def add_indent(self, column: int) -> bool:
        self._check_depth(len(self.indents))
        return bool(super().add_indent(column))

    def _check_depth(self, depth: int) -> None:
        if depth > 2 * MAX_DEPTH:  # `read_file` checks the exact limit
            raise _Error(f"nested deeper than {MAX_DEPTH} levels", self.get_mark())


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
            raise _Error("an alias stands inside of its own anchor", node.start_mark)
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
                raise _Error(f"the key {key.value[:40]!r} stands here and in line {first}", key.start_mark)
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
