"""The sources of the package and of the tests, each read and parsed once for all tests about them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "agenteval_otel"

Node = TypeVar("Node", bound=ast.AST)


@dataclass(frozen=True)
class Source:
    """A file with its text, its syntax tree and all nodes of the tree."""

    path: Path
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]

    @property
    def name(self) -> str:
        """The path from the project's folder."""
        return str(self.path.relative_to(ROOT))

    @property
    def module(self) -> str:
        """The name of a module of the package, without the package's own."""
        parts = self.path.relative_to(PACKAGE).with_suffix("").parts
        if parts[-1] == "__init__" and len(parts) > 1:
            parts = parts[:-1]
        return ".".join(parts)

    def nodes_of(self, *kinds: type[Node]) -> Iterator[Node]:
        for node in self.nodes:
            if isinstance(node, kinds):
                yield node


@cache
def sources_of(folder: Path) -> tuple[Source, ...]:
    """Every Python file below a folder."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        found.append(Source(path, text, tree, tuple(ast.walk(tree))))
    return tuple(found)


def package_sources() -> tuple[Source, ...]:
    return sources_of(PACKAGE)
