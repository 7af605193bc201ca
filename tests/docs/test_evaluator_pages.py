"""Every evaluator that the package brings has its page, whose options are the evaluator's, and its
row in the index.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from agenteval_otel import Suite
from agenteval_otel.components import Component
from agenteval_otel.components.loading import resolve
from agenteval_otel.evaluators import CriterionEvaluator, Evaluator
from agenteval_otel.evaluators.llm_judge.presets import CatalogueJudge, Coherence

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "evaluators"
FAMILIES = {
    "conversations": ("TurnsToResolution", "Repetition", "UnansweredQuestions"),
    "trajectories": (
        "ToolLoops",
        "ErrorRecovery",
        "StepEfficiency",
        "TrajectoryMatch",
        "DefinedTools",
    ),
}
"""Evaluators that share a page, each with a section of its own."""
IN_FAMILIES = {name: page for page, names in FAMILIES.items() for name in names}
BUILT_IN: dict[str, type] = {
    **{
        name: kind
        for name, kind in sorted(Evaluator.registry.items())
        if kind.__module__.startswith("agenteval_otel.evaluators.")
        and not issubclass(kind, CatalogueJudge)
        and name not in IN_FAMILIES
    },
    "Suite": Suite,
}
CATALOGUE = sorted(
    name for name, kind in Evaluator.registry.items() if issubclass(kind, CatalogueJudge)
)
EVERYBODYS = set(CriterionEvaluator.model_fields)
SECTIONS = [
    "Example",
    "What it measures",
    "Options",
    "How it works",
    "What it needs",
    "Cost",
    "Weaknesses",
]
FAMILY_SECTIONS = {"Example", "What they measure", "What they need", "Cost"}
"""Sections of a page of several evaluators, beside one for each of them."""
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NAMED = re.compile(r"`([^`]+)`")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_LITERAL = re.compile(r"none|required|true|false|[\d.,]+|`\S+`")
"""A default that the table writes out; others are told in words, such as "the criterion's"."""

CATALOGUE_PAGE = (FOLDER / "catalogue.md").read_text()

pages = pytest.mark.parametrize("name", BUILT_IN)


_INTRODUCTION = re.compile(r"\s*<!-- index: .+ -->\n\n`?(?:\S.*\n)+\s*")
"""The row of the index, and one paragraph."""
_STEPS = re.compile(r"^1\. .+\n(?:   .+\n)*2\. ", re.MULTILINE)
"""A numbered list of at least two steps."""
_EXAMPLE = re.compile(r"\s*```python\n.*?^```\n.*?^```yaml\n.*?^```\n", re.DOTALL | re.MULTILINE)
"""A block of Python before all else, and one of YAML after it."""


def page_of(name: str) -> Path:
    return FOLDER / f"{_WORDS.sub('-', name).lower()}.md"


def sections_in(page: str) -> dict[str, str]:
    """Return the page's sections by their heading.

    What stands before the first of them has the page's title.
    """
    parts = re.split(r"^#{1,2} (.+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def sections_of(name: str) -> dict[str, str]:
    return sections_in(page_of(name).read_text())


def first_table(section: str) -> list[list[str]]:
    """The cells of a section's first table, without its head."""
    lines = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    rows = lines.group().splitlines()[2:] if lines else []
    return [[cell.strip() for cell in row[1:-1].split("|")] for row in rows]


def written(default: object) -> str:
    """A default as the tables write it."""
    if default is PydanticUndefined:
        return "required"
    if default is None or default == ():
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, int | float):
        return f"{default:,}"
    return f"`{default.type if isinstance(default, Component) else default}`"


def options_of(section: str) -> list[tuple[str, str]]:
    """Each option of a section's table, and its default as it is written there."""
    return [(option, row[1]) for row in first_table(section) for option in _NAMED.findall(row[0])]


def assert_defaults(options: list[tuple[str, str]], fields: dict[str, FieldInfo]) -> None:
    """The table writes out the defaults of these fields; or says them in words."""
    for option, reported in options:
        if option in fields:
            default = fields[option].get_default(call_default_factory=True, validated_data={})
            assert reported == written(default) or not _LITERAL.fullmatch(reported), (
                f"{option}: {default!r}"
            )


def assert_indexed(title: str, page: Path, cost: str) -> None:
    """The page's row in the index has a word in every column, and times that the page names."""
    start = f"| [{title}]({page.name}) "
    (row,) = [
        line for line in (FOLDER / "README.md").read_text().splitlines() if line.startswith(start)
    ]
    cells = [cell.strip() for cell in row[1:-1].split("|")]
    assert all(cells)
    times = _NUMBER.findall(cells[5] + " " + cells[6])
    assert set(times) <= set(_NUMBER.findall(cost)), "the index has other times than the page"


@pages
def test_a_page_has_the_sections_of_all_pages_and_a_row_in_the_index(name: str) -> None:
    """It begins with a sentence and the example, and tells what the evaluator does in steps."""
    sections = sections_of(name)
    assert list(sections) == [name, *SECTIONS]
    assert all(text.strip() for text in sections.values())
    assert _INTRODUCTION.fullmatch(sections[name])
    assert _EXAMPLE.match(sections["Example"])
    assert _STEPS.search(sections["How it works"])
    assert "execution" in sections["What it needs"].lower() or name == "Suite"
    assert_indexed(name, page_of(name), sections["Cost"])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_page_of_several_begins_with_the_example_and_has_a_row_in_the_index(family: str) -> None:
    page = FOLDER / f"{family}.md"
    sections = sections_in(page.read_text())
    title, first, *_ = sections
    assert first == "Example"
    assert {*FAMILY_SECTIONS, *FAMILIES[family]} <= set(sections)
    assert all(text.strip() for text in sections.values())
    assert _INTRODUCTION.fullmatch(sections[title])
    assert _EXAMPLE.match(sections["Example"])
    assert "execution" in sections["What they need"].lower()
    assert_indexed(title, page, sections["Cost"])


def test_no_diagram_is_code() -> None:
    """The site loads no script from elsewhere, so a block of mermaid would be shown as code."""
    pages_with_diagrams = [
        path.name for path in FOLDER.parent.rglob("*.md") if "```mermaid" in path.read_text()
    ]
    assert pages_with_diagrams == []


@pages
def test_a_page_names_all_options_and_no_others(name: str) -> None:
    """The table of options has each field of the evaluator with its default, and nothing that is
    refused at load.
    """
    fields, options = BUILT_IN[name].model_fields, options_of(sections_of(name)["Options"])
    own = {field: info for field, info in fields.items() if field not in EVERYBODYS}
    assert {option.split("[")[0] for option, _ in options} <= set(fields)
    assert {option for option, _ in options} >= set(own)
    assert_defaults(options, own)


@pages
def test_the_settings_of_a_page_load(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The YAML block of the example names this evaluator, or one that its plugin brings, with
    options that it has.
    """
    (block,) = re.findall(r"```yaml\n(.*?)```", sections_of(name)["Example"], re.DOTALL)
    settings = yaml.safe_load(block)
    if "plugins" in settings:
        return
    monkeypatch.chdir(tmp_path)
    # what the reader has: here it fits both a term and a schema
    for file in re.findall(r"_file: ([^\s}]+)", block):
        Path(file).parent.mkdir(exist_ok=True)
        Path(file).write_text("{}")
    kinds = [resolve(Evaluator, entry).type for entry in settings["evaluators"]]
    assert name in kinds or name == "Suite"


@pytest.mark.parametrize("name", IN_FAMILIES)
def test_an_evaluator_on_a_page_of_several_has_its_section(name: str) -> None:
    """With its steps, all of its options and no others, its weaknesses, and settings that load."""
    page = (FOLDER / f"{IN_FAMILIES[name]}.md").read_text()
    section = sections_in(page)[name]
    kind = Evaluator.registry[name]
    options = options_of(section)
    own = {field for field in kind.model_fields if field not in EVERYBODYS}
    assert {option for option, _ in options} >= own
    assert {option for option, _ in options} <= set(kind.model_fields)
    assert_defaults(options, kind.model_fields)
    assert _STEPS.search(section)
    assert "**Weaknesses.**" in section
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert name in [resolve(Evaluator, entry).type for entry in yaml.safe_load(block)["evaluators"]]


def test_there_is_no_page_without_an_evaluator() -> None:
    """A page that describes what is no longer there would be believed."""
    ours = {page_of(name).name for name in BUILT_IN} | {"README.md", "catalogue.md"}
    ours |= {f"{page}.md" for page in FAMILIES}
    assert {path.name for path in FOLDER.glob("*.md")} == ours


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_catalogue_has_a_row_for_each_of_its_types(name: str) -> None:
    """With its rubric as a judge reads it, and measured tokens: a row of another wording would say
    "not measured".
    """
    row = next(
        line for line in CATALOGUE_PAGE.splitlines() if line.startswith(f"| [`{name}`](../rubrics/")
    )
    cells = [cell.strip() for cell in row[1:-1].split("|")]
    assert all(cells)
    assert re.fullmatch(r"[\d,]+ \(\d+ of them the case\)", cells[-1])
    assert (FOLDER / re.findall(r"\((\.\./rubrics/[\w-]+\.md)\)", row)[0]).is_file()


def test_the_catalogue_names_the_options_of_its_types_and_its_settings_load() -> None:
    """Each field that settings may have, with its default, and none that is refused."""
    options = options_of(CATALOGUE_PAGE.split("## Options\n")[1].split("\n## ")[0])
    assert {option for option, _ in options} == set(Coherence.model_fields)
    assert_defaults(options, Coherence.model_fields)
    for block in re.findall(r"```yaml\n(.*?)```", CATALOGUE_PAGE, re.DOTALL):
        for entry in yaml.safe_load(block)["evaluators"]:
            resolve(Evaluator, entry)
