"""A table of questions and answers in memory, and the index that finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from agenteval_otel.ground_truth.base import GroundTruth
from agenteval_otel.ground_truth.index import Index, OriginalIndex, Question, Row, WordIndex, module_name, prepared
from agenteval_otel.models.inputs import is_blank

__all__ = ["MAX_ORIGINAL_ROWS", "MAX_PROMPT_CHARACTERS", "Matching", "Table"]

Matching = Literal["words", "original"]
MAX_PROMPT_CHARACTERS = 65_536
"""A longer prompt is not looked up."""
MAX_ORIGINAL_ROWS = 5_000
"""The original's way looks at every row; more would take the pool's loop milliseconds."""


class Table:
    """Rows, and the way to the one that answers a prompt. Never changes; as quick from any thread.

    Args:
        rows: In the order of the file.
        matching: ``words`` or ``original``; see `FileGroundTruthStore`.
        min_words: Of a partial match.
        min_share: Of a partial match.
        steadily: Wraps what takes long to go through, so that it can pause in between.
    """

    def __init__(
        self,
        rows: Iterable[Row],
        *,
        matching: Matching = "words",
        min_words: int,
        min_share: float,
        steadily: Callable[[Iterable[Any]], Iterable[Any]] = iter,
    ) -> None:
        ready = [prepared(row, at) for at, row in enumerate(rows)]
        self.rows = tuple(one.row for one in ready)
        self._modules = {one.module for one in ready} - {None}
        self._index: Index
        if matching == "original":
            self._index = OriginalIndex(ready)
        else:
            self._index = WordIndex(ready, min_words=min_words, min_share=min_share, steadily=steadily)

    def __repr__(self) -> str:
        return f"<Table {len(self.rows)} rows, {len(self._modules)} modules>"

    def of_module(self, module: str) -> tuple[Row, ...]:
        """The rows of a module, in the order of the file, ignoring the case of its name."""
        return tuple(row for row in self.rows if row.module and module_name(row.module) == module_name(module))

    def find(self, prompt: str | None, module: str | None = None) -> GroundTruth | None:
        """The answer to a prompt: from the module's rows if it has any, else from all.

        None without a prompt, where no row matches, and where the row that matches has a blank answer: that says that
        there is no reference for this question.
        """
        if not prompt or len(prompt) > MAX_PROMPT_CHARACTERS or not prompt.strip():
            return None
        name = module_name(module)
        found = self._index.find(Question.of(prompt), name if name in self._modules else None)
        if found is None or is_blank(found.row.answer):
            return None
        row = found.row
        return GroundTruth(
            answer=row.answer, prompt=row.prompt, category=row.category, module=row.module, share=found.share,
            match="exact" if found.exact else "partial",
        )  # fmt: skip
