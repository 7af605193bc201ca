"""Patterns in the syntax of the package `regex`, which can express all of JavaScript's."""

from __future__ import annotations

from agenteval_otel.patterns.characters import complement, escaped
from agenteval_otel.patterns.syntax import LINE_ENDS, Back, Branches, Chars, Edge, Node, Repeat

__all__ = ["regex_chars", "regex_source"]

_LINE_END = escaped(LINE_ENDS)
_ANY = r"[\x00-\U0010FFFF]"
_EDGES = {
    ("^", False): r"\A",
    ("$", False): r"\Z",
    ("^", True): f"(?<![^{_LINE_END}])",
    ("$", True): f"(?![^{_LINE_END}])",
    ("b", False): "(?:(?<=[A-Za-z0-9_])(?![A-Za-z0-9_])|(?<![A-Za-z0-9_])(?=[A-Za-z0-9_]))",
    ("B", False): "(?:(?<=[A-Za-z0-9_])(?=[A-Za-z0-9_])|(?<![A-Za-z0-9_])(?![A-Za-z0-9_]))",
}


def regex_source(branches: Branches) -> str:
    """The parsed pattern's source; raises RecursionError when it is nested beyond all reason."""
    return "|".join("".join(map(_node, branch)) for branch in branches)


def regex_chars(chars: Chars) -> str:
    """The source of one character."""
    if chars.negated and chars.ranges and not chars.properties:
        # Written out: `regex` takes `[^a]|[^b]` for a class of its own making, in which neither a nor b is.
        chars = Chars(complement(chars.ranges))
    members = escaped(chars.ranges) + chars.properties
    if not members:
        return _ANY if chars.negated else "(?!)"
    if _is_point(chars):
        return members
    text = f"[{'^' if chars.negated else ''}{members}]"
    return f"(?i:{text})" if chars.properties and chars.folded else text


def _is_point(chars: Chars) -> bool:
    return not (chars.negated or chars.properties) and len(chars.ranges) == 1 and len(set(chars.ranges[0])) == 1


def _node(node: Node) -> str:
    if isinstance(node, Chars):
        return regex_chars(node)
    if isinstance(node, Edge):
        return _EDGES[node.kind, node.lines]
    if isinstance(node, Repeat):
        return _node(node.item) + node.text
    if isinstance(node, Back):
        reference = f"(?P={node.group})" if node.group.startswith("g") else f"\\g<{node.group}>"
        # A group that took no part matches the empty text, where `regex` would fail.
        return f"(?({node.group}){f'(?i:{reference})' if node.folded else reference})"
    return f"{node.opening}{regex_source(node.branches)})"
