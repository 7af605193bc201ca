"""YAML for settings, and no more of it: plain values, bounded in depth and size before anything is built.

Built on the scanner, the parser and the composer of PyYAML; its constructors, which could build objects, are never
asked. Words mean what YAML 1.2 says: ``no``, ``off``, dates and ``12:30`` are text. Anchors, aliases and ``<<`` work;
what they unfold to counts as if it were written out, so that a few lines cannot become a billion values.
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


class _Loader(yaml.SafeLoader):
    """Composes nodes; refuses while it reads what no settings need."""

    yaml_implicit_resolvers: dict[str, Any] = {}

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._values = 0
        self._unfolded: dict[str, int] = {}

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        before = self._values
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in self.anchors and event.anchor not in self._unfolded:
                raise _Refused(f"*{event.anchor} stands inside of what it refers to", event.start_mark)
            self._count(self._unfolded.get(str(event.anchor), 0), event.start_mark)
            return super().compose_node(parent, index)
        if event.tag is not None:
            raise _Refused(f"tags are not allowed, found {event.tag[:40]!r}", event.start_mark)
        self._depth += 1
        self._check_depth(self._depth, event.start_mark)
        self._count(1, event.start_mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if event.anchor is not None:
            self._unfolded[event.anchor] = self._values - before
        return node

    def fetch_flow_collection_start(self, token: Any) -> None:
        # The scanner looks ahead, far beyond what is composed, and takes longer the deeper it is.
        self._check_depth(self.flow_level, self.get_mark())
        super().fetch_flow_collection_start(token)

    def add_indent(self, column: int) -> bool:
        self._check_depth(len(self.indents), self.get_mark())
        return bool(super().add_indent(column))

    def _check_depth(self, depth: int, mark: Any) -> None:
        if depth > 2 * MAX_DEPTH:  # the exact limit is the tree's own; this one only ends the reading
            raise _Refused(f"nested deeper than {MAX_DEPTH} levels", mark)

    def _count(self, values: int, mark: Any) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            raise _Refused(f"more than {MAX_VALUES} values, aliases unfolded", mark)


for _word, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]{1,4000}", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(_TAG + _word, re.compile(rf"^(?:{_pattern})$"), list(_first))


class _Refused(yaml.MarkedYAMLError):
    def __init__(self, problem: str, mark: Any) -> None:
        super().__init__(problem=problem, problem_mark=mark)


def load_yaml(text: str, name: str) -> Any:
    """The document's value, as `Section`, `Items` and scalars with their lines; None when it is empty.

    Raises:
        ConfigurationError: Not YAML, or YAML that no settings need; with the line.
    """
    loader: _Loader | None = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        return None if node is None else _value_of(node, name)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark is not None else name
        context = f" ({error.context})" if error.context else ""
        raise ConfigurationError(f"{error.problem or 'not YAML'}{context}", path=where) from None
    except yaml.YAMLError as error:  # a character that YAML has no place for
        raise ConfigurationError(f"not YAML: {str(error).splitlines()[0][:200]}", path=name) from None
    finally:
        if loader is not None:
            loader.dispose()


def _value_of(node: Node, name: str) -> Any:
    if isinstance(node, MappingNode):
        return _section(node, name)
    if isinstance(node, SequenceNode):
        return Items([_value_of(item, name) for item in node.value], [_line(item, name) for item in node.value])
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


def _section(node: MappingNode, name: str) -> Section:
    section = Section()
    merged: list[Node] = []
    for key, value in node.value:
        if key.tag == f"{_TAG}merge":
            merged += value.value if isinstance(value, SequenceNode) else [value]
            continue
        if not isinstance(key, ScalarNode) or key.tag != f"{_TAG}str" or not key.value:
            shown = f"; write '{key.value}'" if isinstance(key, ScalarNode) and key.value else ""
            raise _Refused(f"a key must be text{shown}", key.start_mark)
        if key.value in section:
            first = section.origins[key.value].rpartition(":")[2]
            raise _Refused(f"the key {key.value[:40]!r} stands here and in line {first}", key.start_mark)
        section.put(key.value, _value_of(value, name), _line(key, name))
    for node_below in merged:
        below = _value_of(node_below, name)
        if not isinstance(below, Section):
            raise _Refused("'<<' takes mappings", node_below.start_mark)
        for key in below:
            if key not in section:
                section.put(key, below[key], below.origins[key])
    return section


def _line(node: Node, name: str) -> str:
    return f"{name}:{node.start_mark.line + 1}"
