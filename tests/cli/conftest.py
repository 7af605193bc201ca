"""The command line in this process, in an empty folder; no thread outlives a test; a Jaeger for
those that ask.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from agenteval_otel.cli import main
from tests.backends.fixtures import jaeger_binary_fixture, jaeger_fixture
from tests.config.support import written_settings
from tests.testing.threads import no_thread_left

__all__ = ["jaeger_binary_fixture", "jaeger_fixture", "no_thread_left"]
_TERMINAL = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM")


class CommandLine:
    """Runs commands; `out` and `err` are what the last one printed."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys, self.out, self.err = folder, capsys, "", ""

    def __call__(self, command: str = "", *more: object, code: int | None = 0) -> str:
        """Run a command as a shell would split it, and more words; return what it printed.

        It has to end with this exit code; None is for any.
        """
        try:
            exit_code = main([*shlex.split(command), *map(str, more)])
        except SystemExit as error:  # of argparse
            exit_code = error.code
        self.out, self.err = self._capsys.readouterr()
        assert code is None or exit_code == code, self.err
        return self.out

    def settings(self, text: str) -> Path:
        return written_settings(self.folder, text)

    def file(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)


@pytest.fixture
def cli(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine(tmp_path, capsys)


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variable of ours is set, and none that a command sets outlives the test."""
    for name in list(os.environ):
        is_ours = name.startswith(("AGENTEVAL_", "OTEL_")) and not name.endswith("_BACKENDS")
        if is_ours or name in _TERMINAL:
            monkeypatch.delenv(name)
    before = set(os.environ)
    yield
    for name in os.environ.keys() - before:
        del os.environ[name]
