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
    module.DOCUMENT = tmp_path / "reliability.md"
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
    the table's.
    """
    first = PROMISES[0]
    for promise in PROMISES[1:]:
        measure(promise.code, "0 of 5")
    assert script.main([]) == 1
    assert script.problems(script.DOCUMENT.read_text()) == [f"{first.code}: no figure"]
    measure(first.code, "0 of 5")
    assert (script.main([]), script.main(["--check"])) == (0, 0)
    softer = script.DOCUMENT.read_text().replace(first.passes, "mostly")
    assert any(problem.startswith(first.code) for problem in script.problems(softer))


def test_the_long_form_stands_for_the_short_one_and_failures_show(script: Any) -> None:
    """Figures of several cases become a range, and the long form's take the short one's place; a
    failure is named.
    """
    measure("A1", "5 cases")
    measure("A1", "7 cases", form="full", test="long")
    measure("A2", "lag 900 ms", outcome="failed")
    measure("A3", "3.1 ms of 50", "12 ms of 50")
    shown = script.measured(figures.read_all())
    rows = {row.split(" | ")[0].strip("| "): row for row in shown.splitlines()}
    assert "| 7 cases | full |" in rows["A1"]
    assert "**FAILED**; lag 900 ms" in rows["A2"]
    assert "| 3.1-12 ms of 50 | short |" in rows["A3"]
