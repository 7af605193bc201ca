"""Objectives in settings files: when they count as breached, which callback runs, and errors with
their place.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel import Settings
from agenteval_otel.engine.objectives import BreachSettings, ObjectiveCrossing
from agenteval_otel.errors import ConfigurationError
from tests.config.support import load, wrong

MODULE = """
def page(crossing):
    pass

class Pager:
    @staticmethod
    async def page(crossing):
        pass

def nothing():
    pass

number = 3
raise_at_import = None
"""


@pytest.fixture(autouse=True)
def _company(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules of the application's own."""
    folder = tmp_path / "company"
    folder.mkdir()
    (folder / "objective_alerts.py").write_text(MODULE)
    (folder / "objective_broken.py").write_text("raise SystemExit('no key')")
    monkeypatch.syspath_prepend(str(folder))
    yield
    sys.modules.pop("objective_alerts", None)


def test_a_file_names_functions(tmp_path: Path) -> None:
    """By module and name, also one that belongs to a class, or by a variable."""
    settings = load(
        tmp_path,
        """
        breach: {false_alarm_every: 3000, remind_s: null}
        on_breach: objective_alerts:page
        on_recovery: "${WHO}"
        """,
        environment={"WHO": "objective_alerts:Pager.page", "AGENTEVAL_BREACH__MINIMUM": "7"},
    ).settings
    alerts = sys.modules["objective_alerts"]
    assert (settings.on_breach, settings.on_recovery) == (alerts.page, alerts.Pager.page)
    assert settings.breach == BreachSettings(false_alarm_every=3_000, remind_s=None, minimum=7)
    assert load(tmp_path, "sample_rate: 1").settings.on_breach is None


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        (
            "on_breach: objective_alerts",
            "on_breach",
            "expected a function or 'module:function', found module",
        ),
        ("on_breach: ':page'", "on_breach", "cannot be imported: ValueError"),
        ("on_breach: objective_alert:page", "on_breach", "cannot be imported: ModuleNotFoundError"),
        ("on_recovery: objective_alerts:pag", "on_recovery", "cannot be imported: AttributeError"),
        ("on_breach: objective_broken:page", "on_breach", "cannot be imported: SystemExit: no key"),
        (
            "on_breach: objective_alerts:number",
            "on_breach",
            "expected a function or 'module:function', found int",
        ),
        ("on_breach: objective_alerts:nothing", "on_breach", "takes one argument"),
        ("on_breach: [1]", "on_breach", "expected a function or 'module:function', found list"),
        ("breach: {minimun: 3}", "breach.minimun", "did you mean 'minimum'?"),
        (
            "breach: {false_alarm_every: 5}",
            "breach.false_alarm_every",
            "expected at least 100, found 5",
        ),
        ("breach: {recover_after: 1}", "breach.recover_after", "expected at least 20, found 1"),
        ("breach: {remind_s: 0}", "breach.remind_s", "expected more than 0, found 0"),
        ("breach: {timeout_s: soon}", "breach.timeout_s", "expected a number"),
        ("breach: 3", "breach", "expected a mapping"),
    ],
)
def test_what_is_wrong_is_told_by_its_place(
    tmp_path: Path, text: str, path: str, words: str
) -> None:
    """The field, its line, what was found and what was expected."""
    error = wrong(tmp_path, f"sample_rate: 1\n{text}")
    assert [(problem.origin, problem.path) for problem in error.located] == [
        ("settings.yaml:2", path)
    ]
    assert words in str(error)


def test_code_gives_functions() -> None:
    """Sync, async, a builtin and an object that can be called; not one that takes no argument."""

    async def later(crossing: ObjectiveCrossing) -> None:
        return None

    actual: list[Any] = []
    functions: list[Any] = [print, later, actual.append, lambda crossing, retries=3: None]
    for function in functions:
        assert Settings(on_breach=function).on_breach is function
    with pytest.raises(ConfigurationError, match=r"^on_recovery: .* takes one argument"):
        Settings(on_recovery=lambda: None)
