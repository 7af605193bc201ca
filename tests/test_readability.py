"""Ceilings of what has to be read twice. They only fall: whoever lowers a figure lowers its ceiling."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

import pytest

from tests.sources import ROOT, Node, package_sources, sources_of

LARGE = 40  # syntax nodes of a statement
LONG = 100  # characters of a first sentence
# Methods of named tuples and what Python itself calls by such a name.
NO_REACH = {"_replace", "_asdict", "_fields", "_exit", "_getframe"}

NODES_A_STATEMENT = 10.4
LARGE_STATEMENTS = 0.0055  # of the simple ones
NESTED_CONDITIONALS = 0
TWO_LOOPS = 0
TUPLE_ASSIGNMENTS = 0
FORMAT_SKIPPED = 39
REACHES_OF_TESTS = 3


def nodes_of(*kinds: type[Node]) -> Iterator[tuple[str, Node]]:
    """Yield every node of a kind in the package, with its place."""
    for source in package_sources():
        for node in source.nodes_of(*kinds):
            yield f"{source.name}:{getattr(node, 'lineno', 0)}", node


def size_of(node: ast.AST) -> int:
    """How many syntax nodes it has, itself included."""
    return sum(1 for _ in ast.walk(node))


def nested_conditionals() -> list[str]:
    """Conditional expressions within another one."""
    return [
        place
        for place, node in nodes_of(ast.IfExp)
        if any(isinstance(part, ast.IfExp) for part in ast.walk(node) if part is not node)
    ]


def comprehensions_with_two_loops() -> list[str]:
    """Comprehensions and generator expressions with more than one `for`."""
    found = []
    for place, node in nodes_of(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp):
        if len(getattr(node, "generators", ())) > 1:
            found.append(place)
    return found


def tuple_assignments() -> list[str]:
    """Assignments of several values to several names, ``a, b = x, y``."""
    found = []
    for place, node in nodes_of(ast.Assign):
        if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
            found.append(place)
    return found


def skipped_by_the_formatter() -> list[str]:
    """Lines that the formatter leaves alone."""
    found = []
    for source in package_sources():
        for number, line in enumerate(source.text.splitlines(), 1):
            if "# fmt: skip" in line:
                found.append(f"{source.name}:{number}")
    return found


def reaches_into_privates() -> list[str]:
    """What tests read or replace of the package's privates."""
    found = []
    for source in sources_of(ROOT / "tests"):
        for node in source.nodes:
            if is_reach(node):
                found.append(f"{source.name}:{getattr(node, 'lineno', 0)}")
    return found


def is_reach(node: ast.AST) -> bool:
    """Whether it is a private attribute of another object, by its name or in a text that names it."""
    if isinstance(node, ast.Constant):
        text = node.value
        return isinstance(text, str) and bool(re.fullmatch(r"agenteval_otel\.[\w.]*\._\w+", text))
    if not isinstance(node, ast.Attribute) or node.attr in NO_REACH:
        return False
    is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
    return node.attr.startswith("_") and not node.attr.startswith("__") and not is_own


@pytest.mark.parametrize(
    ("found_by", "ceiling"),
    [
        (nested_conditionals, NESTED_CONDITIONALS),
        (comprehensions_with_two_loops, TWO_LOOPS),
        (tuple_assignments, TUPLE_ASSIGNMENTS),
        (skipped_by_the_formatter, FORMAT_SKIPPED),
        (reaches_into_privates, REACHES_OF_TESTS),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_there_is_no_more_to_read_twice(found_by: Callable[[], list[str]], ceiling: int) -> None:
    """A new one is refused. One less lowers the ceiling."""
    found = found_by()
    assert len(found) == ceiling, "\n".join([f"{len(found)}, and not {ceiling}:", *found])


def test_statements_stay_small() -> None:
    """On average, and the share of the large ones."""
    statements = [node for _, node in nodes_of(ast.stmt)]
    total = sum(len(source.nodes) for source in package_sources())
    assert total / len(statements) <= NODES_A_STATEMENT
    simple = [node for node in statements if not hasattr(node, "body")]
    large = [node for node in simple if size_of(node) > LARGE]
    assert len(large) / len(simple) <= LARGE_STATEMENTS


def test_docstrings_begin_with_one_short_sentence() -> None:
    """None has a semicolon, but in what it quotes, and none a first sentence that is long.

    That the first word of a function's is a verb is ruff's D401.
    """
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    wrong = []
    for place, node in nodes_of(*documented):
        assert isinstance(node, documented)
        text = re.sub(r"``.*?``", "", ast.get_docstring(node) or "", flags=re.DOTALL)
        first = re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0]
        if ";" in text or len(first) > LONG:
            wrong.append(f"{place}: {first}")
    assert wrong == []
