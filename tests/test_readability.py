"""Ceilings of what has to be read twice. They only fall: whoever lowers a figure lowers its ceiling."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

import pytest

from tests.sources import PACKAGE, ROOT, Node, Source, package_sources, sources_of

LARGE = 40  # syntax nodes of a statement
LONG = 100  # characters of a first sentence
# Methods of named tuples and what Python itself calls by such a name.
NO_REACH = {"_replace", "_asdict", "_fields", "_exit", "_getframe"}
SEPARATOR = re.compile(r"[,;\t]+")
END_OF_CLAUSE = re.compile(r";(?=\s|$)")
NO_PROSE = {
    "capture/redaction/reading.py": ("[",),  # an expression
    "engine/capabilities/off_peak/batches.py": ("CREATE TRIGGER ",),
    "engine/capabilities/off_peak/off_peak.py": ("CREATE TRIGGER ",),
    "engine/execution/supervisor.py": ("import json, os, sys;",),
    "evaluators/llm_judge/prompt.py": (  # what judges are asked, as it was measured
        "You are an experienced evaluator",
        "The data has ended;",
        " List at most ",
        "Claims: ",
        "Answer with one JSON object",
        "; ",
    ),
    "offline/comparison/pairwise.py": ("Which of the two serves", "The data has ended;"),
    "provisioning/collector/sidecars.py": ("import http.client as h;",),
    "provisioning/grafana/texts.py": ("&#",),  # HTML
    "sidecar/http.py": ("text/plain; charset=",),
    "storage/sql_texts.py": ("CREATE TRIGGER agenteval_texts_",),
    "testing/model_server.py": ("text/event-stream; charset=",),
    "ui/access.py": ("default-src ", "{}={}; Path=/"),
    "ui/app.py": ("text/csv; charset=", "attachment; filename="),
    "ui/report.py": ("default-src ",),
}
"""Texts that hold semicolons and are no prose: the file, and how they begin."""

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


def texts_of(source: Source) -> Iterator[tuple[int, str]]:
    """Yield every text with its line, docstrings aside. In formatted ones ``{}`` is for a value."""
    skipped = set()
    for node in source.nodes_of(ast.Expr, ast.JoinedStr):
        skipped.update([node.value] if isinstance(node, ast.Expr) else node.values)
    for node in source.nodes_of(ast.Constant, ast.JoinedStr):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        texts = [part.value if isinstance(part, ast.Constant) else "{}" for part in parts]
        if node not in skipped and all(isinstance(text, str) for text in texts):
            yield node.lineno, "".join(map(str, texts))


def test_messages_have_no_semicolon() -> None:
    """No help text, error, log line or explanation has one.

    Separators of lists, whose items hold commas, are no prose.
    """
    wrong = []
    unused = {(file, begin) for file, begins in NO_PROSE.items() for begin in begins}
    for source in package_sources():
        file = str(source.path.relative_to(PACKAGE))
        for line, text in texts_of(source):
            if not END_OF_CLAUSE.search(text) or SEPARATOR.fullmatch(text):
                continue
            begin = next(filter(text.startswith, NO_PROSE.get(file, ())), None)
            if begin is None:
                wrong.append(f"{source.name}:{line}: {text}")
            unused.discard((file, str(begin)))
    for file in PACKAGE.rglob("*.toml"):  # log lines and explanations
        wrong += [
            f"{file.name}: {found}"
            for found in re.findall(r".*;(?:\s|$).*", file.read_text("utf-8"))
        ]
    assert (wrong, unused) == ([], set())
