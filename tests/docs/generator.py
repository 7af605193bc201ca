"""`docs/generate.py`, which is a script and in no package, as a module."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

__all__ = ["DOCS", "load_generator"]

DOCS = Path(__file__).resolve().parents[2] / "docs"


def load_generator() -> Any:
    """The script's module, made anew."""
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
