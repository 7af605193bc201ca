"""Modules of the current folder, found by the names that settings and arguments give."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agenteval_otel.components.loading import import_function, import_plugins
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.runtime.named_modules import (
    finding_in_current_folder,
    folder_of_named_modules,
    naming,
)

Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module of the current folder; what was imported from there is forgotten."""
    monkeypatch.chdir(tmp_path)
    known = set(sys.modules)

    def write(name: str, text: str) -> None:
        file = tmp_path / f"{name.replace('.', '/')}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(textwrap.dedent(text))

    yield write
    for name in set(sys.modules) - known:
        del sys.modules[name]


def found(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return False
    return True


def test_only_named_modules_are_found(write: Write) -> None:
    """By a function's name or as a plugin, and only in a command; `sys.path` stays as it was."""
    write("named_here", "VALUE = 1")
    write("plugin_here.inside", "VALUE = 2")
    write("other_here", "")
    path = list(sys.path)
    with pytest.raises(ConfigurationError):
        import_function("named_here:VALUE", path="evaluators[0]")
    with finding_in_current_folder():
        assert not found("named_here")
        assert import_function("named_here:VALUE", path="evaluators[0]") == 1
        import_plugins(["plugin_here.inside"])
        assert found("plugin_here.inside")
        assert not found("other_here")
        with pytest.raises(ConfigurationError):
            import_plugins(["absent_here"])
    assert folder_of_named_modules() is None
    assert sys.path == path


def test_a_named_module_imports_its_neighbours(write: Write) -> None:
    """At the top and later in a function, and neighbours import theirs. What they import of
    installed packages is found where it is installed.
    """
    write("json", "raise AssertionError('the standard library comes first')")
    write("yaml", "raise AssertionError('installed packages come first')")
    write("near_here", "import far_here, json, yaml")
    write("far_here", "VALUE = 3")
    write("late_here", "VALUE = 4")
    write(
        "main_here",
        """
        import importlib
        import near_here
        def late():
            import late_here
            return late_here.VALUE + importlib.import_module("far_here").VALUE
        """,
    )
    with finding_in_current_folder():
        late: Any = import_function("main_here:late", path="run")
        assert late() == 7


def test_a_library_finds_nothing_there(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while a named module imports the library, and in what the module calls of it."""
    library = tmp_path / "installed"
    library.mkdir()
    (library / "library_there.py").write_text(
        "import importlib\n"
        "def optional():\n"
        "    try: return importlib.import_module('optional_here').__name__\n"
        "    except ImportError: return None\n"
        "FIRST = optional()\n"
    )
    monkeypatch.syspath_prepend(library)
    write("optional_here", "")
    write(
        "main_here",
        """
        import library_there
        BOTH = library_there.FIRST, library_there.optional()
        """,
    )
    with finding_in_current_folder():
        assert import_function("main_here:BOTH", path="run") == (None, None)


def test_a_name_is_looked_for_only_while_it_is_resolved(write: Write) -> None:
    """A name that was resolved in vain is no name afterwards; another thread's is none here."""
    with finding_in_current_folder():
        with naming("appears_here"):
            assert not found("appears_here")
        write("appears_here", "")
        importlib.invalidate_caches()
        assert not found("appears_here")
