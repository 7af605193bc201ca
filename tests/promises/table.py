"""The promises that the tests of this folder hold, as `promises.toml` lists them in rank order."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import NamedTuple


class Promise(NamedTuple):
    """One promise: what holds, what is done to break it, and the figure at which its test passes."""

    code: str
    says: str
    fault: str
    passes: str


GROUPS = {
    "A": "The host is not hurt",
    "B": "Privacy, security, money",
    "C": "No score is lost in silence, doubled or invented",
    "D": "Operations",
}
"""What stands at stake, by the first letter of a code."""

_ROWS = Path(__file__).with_name("promises.toml").read_text(encoding="utf-8")
PROMISES = tuple(Promise(code, **row) for code, row in tomllib.loads(_ROWS).items())
"""Every promise with a test in this folder."""

NOT_BUILT = {
    "workers behind a broker": ("C8", "C9", "D5"),
}
"""Promises of parts that there are none of yet: nothing is claimed."""

BY_CODE = {promise.code: promise for promise in PROMISES}
_FILE = re.compile(r"test_([a-d]\d+)_\w+\.py")


def code_of(file: Path) -> str | None:
    """The promise that a test file is about, by its name; None for another file."""
    named = _FILE.fullmatch(file.name)
    return named[1].upper() if named else None
