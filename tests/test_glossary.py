"""The glossary: names and prose use the words of OpenTelemetry, Python and the evaluation
literature.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.sources import ROOT, Source, package_sources

# What a judge reads: the wording is measured.
PROMPTS = {"evaluators.llm_judge.prompt", "evaluators.judges.prompt"}
DOCUMENTS = sorted(
    path
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        *(ROOT / "docs").rglob("*.md"),
    )
    # Decisions that are history keep their words; the wording of rubrics is measured, and what a
    # judge reads.
    if "uperseded" not in path.read_text()[:400] and path.parent.name != "rubrics"
)

# As a whole name they say nothing about the value.
VAGUE = frozenset({"asked", "dear", "found", "given", "held", "one", "said", "told", "troubles"})
# Parts of names that belong to metaphors, with the word to use instead.
METAPHORS = {
    "aside": "unsampled", "courtesy": "backpressure", "dear": "expensive", "door": "entry point", "gate": "threshold",
    "guest": "package", "ladder": "backoff", "lane": "execution", "passage": "permit", "restraint": "load shedding",
    "stepdown": "load shedding", "tally": "count",
}  # fmt: skip
# Prose that a developer has to translate.
PHRASES = {
    r"(?<![\"'])\b([Nn]obody|[Ww]hoever|[Ss]omebody)\b": "the passive, or the part itself",
    r"(?<!\?:)\b[Dd]ear(er|est)?\b": "expensive", r"\b(passed|gone) by\b": "unsampled", r"\blanes?\b": "execution",
    r"\brestraint\b": "load shedding", r"\bstepp?(ed|ing) down\b": "load shedding", r"\bin vain\b": "without effect",
    r"(?<!there )(?<!There )(?<!default )\b(is|are) none\b(?! (of|here))": "is not one",
}  # fmt: skip


def words_of(name: str) -> list[str]:
    """The words of a name in snake_case or CamelCase."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def names_of(source: Source) -> Iterator[tuple[int, str]]:
    """Yield every name that the code gives to a class, function, parameter, variable or field."""
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def prose_of(source: Source) -> Iterator[tuple[int, str]]:
    """Yield every text in quotes and every comment. A text with a number sign comes twice."""
    for node in source.nodes_of(ast.Constant):
        if isinstance(node.value, str):
            yield node.lineno, f'"{node.value}"'
    for number, line in enumerate(source.text.splitlines(), 1):
        _, sign, comment = line.partition("#")
        if sign:
            yield number, comment


def refused_name(name: str) -> str | None:
    """Why the glossary refuses a name; None if it does not."""
    if name.lstrip("_") in VAGUE:
        return f"{name}: name the value for what it is"
    for word in words_of(name):
        if (singular := word.removesuffix("s")) in METAPHORS:
            return f"{name}: write {METAPHORS[singular]}"
    return None


def refused_phrases(text: str) -> list[str]:
    """What the glossary refuses in prose; code spans and blocks are not prose."""
    prose = re.sub(r"```.*?```|``[^`]*``|`[^`\n]*`|\([\w./#-]*\)", "", text, flags=re.DOTALL)
    return [
        f"{match.group()!r}: write {better}"
        for phrase, better in PHRASES.items()
        for match in re.finditer(phrase, prose)
    ]


def test_code_uses_the_glossary() -> None:
    """Names, docstrings and comments of the package hold no vague word and no metaphor."""
    refused = []
    for source in package_sources():
        for line, name in names_of(source):
            if why := refused_name(name):
                refused.append(f"{source.name}:{line}: {why}")
        if source.module in PROMPTS:
            continue
        for line, text in prose_of(source):
            refused += [f"{source.name}:{line}: {why}" for why in refused_phrases(text)]
    assert refused == []


def test_documents_use_the_glossary() -> None:
    """Documents hold no phrase that a developer has to translate."""
    refused = {path.name: refused_phrases(path.read_text()) for path in DOCUMENTS}
    assert {name: phrases for name, phrases in refused.items() if phrases} == {}


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("Gate", "threshold"),
        ("_lane_held", "execution"),
        ("found", "name the value"),
        ("open_doors", "entry point"),
    ],
)
def test_the_glossary_refuses(name: str, better: str) -> None:
    """A metaphor is refused with the word to use; a vague name with what to do."""
    assert better in (refused_name(name) or "")


def test_the_glossary_refuses_phrases_outside_of_code() -> None:
    """Prose is held to the glossary, code spans are not."""
    assert refused_phrases("Dear evaluators run in `lane` free.") == ["'Dear': write expensive"]
