"""The document of the promises is made of their table and their figures, and agrees with the tests
that there are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.generator import load_script
from tests.promises import figures
from tests.promises.table import PROMISES


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script at work on a copy of the document and figures of its own."""
    module = load_script("promises")
    monkeypatch.setenv("AGENTEVAL_FIGURES", str(tmp_path / "figures"))
    text = module.DOCUMENT.read_text()
    module.DOCUMENT = tmp_path / "promises.md"
    module.DOCUMENT.write_text(text)
    return module


def measure(
    code: str, *message: str, test: str = "test", form: str = "short", outcome: str = "passed"
) -> None:
    figures.write(code, test, form=form, outcome=outcome, figures=list(message), took_s=1.0)


def test_promises_tests_and_document_agree() -> None:
    """Each promise of the table has a test file and a figure in the document; what is not built is
    named as such.
    """
    script = load_script("promises")
    assert script.problems(script.DOCUMENT.read_text()) == []


def test_missing_figures_and_edited_rows_are_named(script: Any) -> None:
    """What was not measured is said in the row and by the exit code, and so is a row that is not
    the table's, or that names other tests.
    """
    first = PROMISES[0]
    for promise in PROMISES[1:]:
        measure(promise.code, "0 of 5")
    assert script.main([]) == 1
    assert script.problems(script.DOCUMENT.read_text()) == [f"{first.code}: no figure"]
    measure(first.code, "0 of 5")
    assert (script.main([]), script.main(["--check"])) == (0, 0)
    text = script.DOCUMENT.read_text()
    for part in (first.says, "test_a1_transparent.py"):
        edited = text.replace(part, "mostly")
        assert any(problem.startswith(first.code) for problem in script.problems(edited))


def test_the_long_form_stands_for_the_short_one_and_failures_show(script: Any) -> None:
    """Figures of several cases become a range, and the long form's take the short one's place; a
    failure is named.
    """
    measure("A1", "5 cases, 0 differences")
    measure("A1", "7 cases, 0 differences", form="full", test="long")
    measure("A2", "lag 900 ms", outcome="failed")
    measure("A3", "3.1 ms of 50", "12 ms of 50")
    rows = rows_of(script)
    assert "| 7 cases, 0 differences |" in rows["A1"]
    assert "**FAILED**; lag 900 ms" in rows["A2"]
    assert "| 3.1-12 ms of 50 |" in rows["A3"]


def test_a_row_shows_the_chosen_parts_of_its_figures(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other figures and the words around the chosen part are left out; without the part the first
    figure is shown.
    """
    chosen = {"A1": ["# cases", "# of #"], "A2": ["lag # ms"]}
    monkeypatch.setattr(script, "SHOWN", chosen)
    measure("A1", "objects: 1,220 cases, none wrong", "streams: 80 cases", "3 of 4 closed", "else")
    measure("A2", "idle 5 ms", "busy 6 ms")
    rows = rows_of(script)
    assert "| 80-1,220 cases; 3 of 4 |" in rows["A1"]
    assert "| idle 5 ms |" in rows["A2"]


def rows_of(script: Any) -> dict[str, str]:
    """The rows that the script makes of the figures, by their codes."""
    shown = script.measured(figures.read_all()).splitlines()
    return {row.split("**")[1]: row for row in shown if row.startswith("| **")}
