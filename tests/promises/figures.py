"""What the promise tests measured: a small JSON file per test, of its last run; `docs/promises.py`
makes the table.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import platform
import re
from pathlib import Path
from typing import NamedTuple, Protocol

FULL = os.environ.get("AGENTEVAL_PROMISES") == "full"
"""Whether the long forms run: ten minutes where the short ones take seconds."""
VARIABLE = "AGENTEVAL_FIGURES"
_DEFAULT = Path(__file__).resolve().parents[2] / "build" / "figures"


class Recorder(Protocol):
    """The fixture `promise`."""

    def __call__(self, code: str, *, figure: str) -> None:
        """Keep what was measured for this promise, in words with units; the same words again add
        nothing.
        """


class Entry(NamedTuple):
    """One test's last run: what it proves, in which form, how it ended and what it measured."""

    code: str
    test: str
    form: str
    outcome: str
    figures: list[str]
    took_s: float
    date: str
    python: str
    cores: int


def sized(short: int, full: int) -> int:
    """The number for this run of a test that both forms share; such a test bears the mark `sized`."""
    return full if FULL else short


def folder() -> Path:
    """Where the figures are: `AGENTEVAL_FIGURES`, else ``build/figures`` in the project, which git
    ignores.
    """
    return Path(os.environ.get(VARIABLE) or _DEFAULT)


def write(
    code: str, test: str, *, form: str, outcome: str, figures: list[str], took_s: float
) -> None:
    entry = Entry(
        code,
        test,
        form,
        outcome,
        figures,
        round(took_s, 2),
        datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        platform.python_version(),
        os.cpu_count() or 1,
    )
    short = re.sub(r"\W+", "-", test.rpartition("::")[2])[:60]
    path = folder() / f"{code}-{form}-{short}-{hashlib.sha256(test.encode()).hexdigest()[:12]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.draft")
    draft.write_text(json.dumps(entry._asdict(), indent=1), encoding="utf-8")
    draft.replace(path)


def read_all() -> list[Entry]:
    return [
        Entry(**json.loads(path.read_text(encoding="utf-8")))
        for path in sorted(folder().glob("*.json"))
    ]
