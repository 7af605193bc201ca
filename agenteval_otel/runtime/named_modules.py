"""Modules of the current folder, found by the names that settings and arguments give.

Commands run in folders of anybody's making, such as a downloaded project. The folder is therefore
never in `sys.path`, where every optional import of a library would find its files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_IMPORTERS = ("importlib", "_frozen_importlib", "_frozen_importlib_external")
_named: ContextVar[str] = ContextVar("agenteval_named_module", default="")


class NamedModules:
    """Finds top-level modules of one folder, for two kinds of imports alone.

    A module is found if it is the one that is being resolved (`naming`), or if a module that was
    found here imports it. Installed modules come first: this finder is the last one.

    Attributes:
        folder: Absolute path of the folder.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._names_here: set[str] = set()

    def __repr__(self) -> str:
        return f"<NamedModules {self.folder}>"

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module for `sys.meta_path`. Return None for a submodule, which its package finds."""
        if path is not None:
            return None
        is_named = fullname == _named.get()
        if not is_named and _importing_module() not in self._names_here:
            return None
        spec = PathFinder.find_spec(fullname, [self.folder])
        if spec is not None:
            self._names_here.add(fullname)
        return spec


def _importing_module() -> str:
    """Return the top-level name of the module whose code runs the import, or ``""``."""
    frame = sys._getframe(2)  # the caller of `find_spec`
    while frame is not None:
        name = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if name not in _IMPORTERS:
            return name
        frame = frame.f_back  # type: ignore[assignment]
    return ""


@contextmanager
def naming(module: str) -> Iterator[None]:
    """Let the import of a module in this block find it in the folder, if there is one."""
    token = _named.set(module.partition(".")[0])
    try:
        yield
    finally:
        _named.reset(token)


@contextmanager
def finding_in_current_folder() -> Iterator[None]:
    """Find named modules in the current folder during the block."""
    try:
        finder = NamedModules(os.getcwd())
    except OSError:  # the folder was removed
        yield
        return
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@contextmanager
def leaving_out_current_folder() -> Iterator[None]:
    """Find no module of a folder during the block, whatever names it.

    A file of the folder that was not named may be an outsider's.
    """
    finders = [finder for finder in sys.meta_path if isinstance(finder, NamedModules)]
    for finder in finders:
        sys.meta_path.remove(finder)
    try:
        yield
    finally:
        sys.meta_path.extend(finders)


def find_in(folder: str | None) -> None:
    """Find named modules in a folder, to the end of the process."""
    if folder is not None:
        sys.meta_path.append(NamedModules(folder))


def folder_of_named_modules() -> str | None:
    """Return the folder in which named modules are found, or None."""
    for finder in sys.meta_path:
        if isinstance(finder, NamedModules):
            return finder.folder
    return None
