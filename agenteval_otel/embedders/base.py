"""Contract of embedders: texts in, one vector per text out."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from agenteval_otel.components import Component
from agenteval_otel.models.value import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class EmbedderUsage(Value):
    """What an embedding has used, retries with it.

    Attributes:
        calls: Requests that were sent.
        input_tokens: Tokens that the provider counted.
    """

    calls: int = 0
    input_tokens: int = 0


class Embedded(NamedTuple):
    """Vectors, as `Embedder.embed` returns them, and their usage; None where nothing is counted."""

    vectors: Any
    usage: EmbedderUsage | None = None


class Embedder(Component, contract="embedder"):
    """Turns texts into vectors; the nearer two texts, the nearer to 1 is the cosine of the angle between theirs.

    Implement `embed`, with ``type="..."`` in the class line where settings should name it. A plain method computes: its
    evaluator runs in a worker process. An ``async def`` asks a model over the network: its evaluator is ``async`` and
    gets redacted text.
    """

    @property
    def is_async(self) -> bool:
        """Whether `embed` awaits a network answer."""
        return inspect.iscoroutinefunction(self.embed)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32] | Awaitable[NDArray[np.float32]]:
        """Vectors of the texts: float32, one row per text, in their order, all of one length.

        Rows have the length 1; a text without content, such as the empty one, has a row of zeros. The same text has the
        same row in every process, whatever the other texts of the call are.
        """
        raise NotImplementedError

    async def embedded(self, texts: Sequence[str]) -> Embedded:
        """The result of `embed`, with its usage where the embedder counts it."""
        rows = self.embed(texts)
        return Embedded(await rows if inspect.isawaitable(rows) else rows)

    def config_problem(self) -> str | None:
        """Why it cannot embed now, as far as that is known without a call; None where nothing is wrong."""
        return None

    def prepare(self) -> None:
        """Load what is heavy; called in a worker process, before its time limits and before it forks."""


def unit_rows(rows: Any) -> NDArray[np.float32]:
    """The rows divided by their lengths; a row of zeros stays. Finite numbers of any size."""
    import numpy as np

    matrix: NDArray[np.float64] = np.asarray(rows, dtype=np.float64)
    largest = np.abs(matrix).max(axis=1, keepdims=True, initial=0.0)
    matrix = np.divide(matrix, largest, out=np.zeros_like(matrix), where=largest > 0.0)  # no square overflows
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    np.divide(matrix, lengths, out=matrix, where=lengths > 0.0)
    return matrix.astype(np.float32)
