"""Notes on answers: a comment, and which ones were looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

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
    is_looked_at = _rows_with(columns["evaluation_id"], sorted(ids))
    kept: Rows = rows[is_looked_at[rows] == (looked == "yes")]
    return kept


def _rows_with(stored: NDArray[Any], ids: Sequence[str]) -> NDArray[np.bool_]:
    """Tell of each row whether its id is one of these.

    The rows of a database are in the order of their ids, so a search takes a tenth of the time of
    `numpy.isin`.
    """
    halves = stored.view(">u8").reshape(-1, 2)
    wanted = np.frombuffer(bytes.fromhex("".join(ids)), ">u8").reshape(-1, 2)
    firsts = halves[:, 0].astype(np.uint64)
    starts = np.searchsorted(firsts, wanted[:, 0].astype(np.uint64), "left")
    stops = np.searchsorted(firsts, wanted[:, 0].astype(np.uint64), "right")
    lengths = stops - starts
    before = np.cumsum(lengths) - lengths
    places = np.arange(lengths.sum()) + np.repeat(starts - before, lengths)
    is_it = halves[places, 1] == np.repeat(wanted[:, 1], lengths)
    marked = np.zeros(len(stored), np.bool_)
    marked[places[is_it]] = True
    return marked
