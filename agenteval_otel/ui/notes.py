"""Notes on answers: a comment, and which ones were looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from agenteval_otel.errors import ConfigurationError
from agenteval_otel.storage.notes import Notes
from agenteval_otel.ui.columns import ResultColumns, Rows

LOOKED: Final = ("yes", "no")
"""Whether an answer was looked at, in an address and in a form."""


def take_note(notes: Notes, evaluation_id: str, form: Mapping[str, str], *, comments: bool) -> None:
    """Store what a form says of an answer: its comment, or that it was looked at.

    Raises `StorageError`, and `ConfigurationError` for a form that says neither. `comments` tells
    whether comments are kept.
    """
    looked = form.get("looked")
    if looked in LOOKED:
        notes.mark(evaluation_id, looked=looked == "yes")
    elif "comment" in form and comments:
        notes.comment(evaluation_id, form["comment"])
    else:
        raise ConfigurationError("expected a comment, or looked: yes or no", path="note")


def looked_rows(columns: ResultColumns, rows: Rows, looked: str, present: str | None) -> Rows:
    """Return the rows of the answers that were looked at, or of those that were not. Blocks.

    The answer `present` is among them in either case: it is being looked at.
    """
    notes = columns.place.notes
    ids = set() if notes is None else set(notes.looked_at())
    if present is not None and looked == "yes":
        ids.add(present)
    elif present is not None:
        ids.discard(present)
    # The random digits at the end of the ids are enough to tell them apart.
    wanted = np.frombuffer(bytes.fromhex("".join(ids)), np.uint64).reshape(-1, 2)[:, 1]
    stored = columns["evaluation_id"][rows].view(np.uint64).reshape(-1, 2)[:, 1]
    kept: Rows = rows[np.isin(stored, wanted, invert=looked == "no")]
    return kept
