"""The contract of embedders: texts in, one vector per text out.

`CallableEmbedder` is the embedder that asks an object of the program's.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field

from agenteval_otel.components import Component
from agenteval_otel.components.loading import resolve_or_wrap
from agenteval_otel.models.value import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

_METHODS = ("embed", "embed_documents", "encode")
_OPENAI = {
    "type": "openai_compatible",
    "base_url": "https://api.openai.com/v1",
    "api_key_env": "OPENAI_API_KEY",
}


class EmbedderUsage(Value):
    """Holds what an embedding has used, including its retries.

    Attributes:
        calls: Requests that were sent.
        input_tokens: Tokens that the provider counted.
    """

    calls: int = 0
    input_tokens: int = 0


class Embedder(Component, contract="embedder"):
    """Turns texts into vectors.

    The more alike two texts are, the closer the cosine of their vectors is to 1.

    Implement `embed`, with ``type="..."`` in the class line where settings should name it. With a
    plain method the evaluator runs in a worker process. With an ``async def``, for a model on the
    network, the evaluator is ``async`` and receives redacted text.
    """

    @property
    def is_async(self) -> bool:
        """Tell whether `embed` awaits a network answer."""
        return inspect.iscoroutinefunction(self.embed)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32] | Awaitable[NDArray[np.float32]]:
        """Return vectors of the texts: float32, one row per text, in their order.

        All rows have the same number of dimensions, and the length 1. A text without content, such
        as the empty one, has a row of zeros. The same text has the same row in every process,
        whatever the other texts of the call are.
        """
        raise NotImplementedError

    async def embedded(self, texts: Sequence[str]) -> tuple[Any, EmbedderUsage | None]:
        """Return the result of `embed`, and its usage if the embedder counts it, else None."""
        rows = self.embed(texts)
        if inspect.isawaitable(rows):
            return await rows, None
        return rows, None

    def config_problem(self) -> str | None:
        """Return why it cannot embed now, or None if nothing is wrong.

        Only what is known without a call is reported.
        """
        return None

    def prepare(self) -> None:
        """Load what is heavy.

        It is called in a worker process, before the process's time limits and before the process
        forks.
        """


def unit_rows(rows: ArrayLike) -> NDArray[np.float32]:
    """Divide the rows by their lengths. A row of zeros stays. Finite numbers may have any size."""
    import numpy as np

    matrix: NDArray[np.float64] = np.asarray(rows, dtype=np.float64)
    largest = np.abs(matrix).max(axis=1, keepdims=True, initial=0.0)
    # no square overflows
    matrix = np.divide(matrix, largest, out=np.zeros_like(matrix), where=largest > 0.0)
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    np.divide(matrix, lengths, out=matrix, where=lengths > 0.0)
    return matrix.astype(np.float32)


class CallableEmbedder(Embedder):
    """Wraps an object of the program's that embeds. It stays in this process.

    Attributes:
        name: Names the object in the fingerprint of the evaluator that uses it.
        model: A function of the texts, or an object with ``embed(texts)``,
            ``embed_documents(texts)`` or ``encode(texts)``, sync or async. It returns a vector for
            each text, or something with ``embeddings``. Left out of dumps.
    """

    name: str = ""
    model: Any = Field(exclude=True)

    @classmethod
    def of(cls, model: Any) -> Self:
        """Wrap the object as an embedder, named after its class.

        A function is named after itself.
        """
        kind = model if inspect.isroutine(model) else type(model)
        return cls(name=f"{kind.__module__}.{kind.__qualname__}", model=model)

    @property
    def is_async(self) -> bool:
        """Tell whether the object's method is an ``async def``."""
        return inspect.iscoroutinefunction(self._method)

    def embed(self, texts: Sequence[str]) -> Any:
        """Return the object's vectors, in its own form. Its exceptions are raised as they are."""
        return self._method(list(texts))

    async def embedded(self, texts: Sequence[str]) -> tuple[Any, EmbedderUsage | None]:
        rows, usage = await super().embedded(texts)
        named = (
            rows.get("embeddings")
            if isinstance(rows, Mapping)
            else getattr(rows, "embeddings", None)
        )
        return rows if named is None else named, usage

    @cached_property
    def _method(self) -> Callable[..., Any]:
        return _method_of(self.model) or self.model


def as_embedder(value: object, *, path: str | None = None) -> Embedder:
    """Return an embedder from what a caller or a configuration may write.

    An `Embedder` stays as it is. A mapping is resolved by its ``type``. A type's name or an
    embedder's class becomes an embedder with default settings. The name of a well-known model
    (``text-embedding-3-small``, with ``OPENAI_API_KEY``) becomes the embedder that asks that model.
    An object or a function that embeds becomes a `CallableEmbedder`.

    Raises:
        ConfigurationError: The value is none of these, its type is unknown, or its settings are
            wrong.
    """
    if isinstance(value, str) and value.startswith("text-embedding-"):
        value = {**_OPENAI, "model": value}
    return resolve_or_wrap(
        Embedder,
        value,
        path=path,
        wrap=lambda model: CallableEmbedder.of(model) if _method_of(model) else None,
        expected="an embedder, an object with embed(texts)",
    )


def _method_of(model: object) -> Callable[..., Any] | None:
    if inspect.isroutine(model):
        return model
    methods = (getattr(model, name, None) for name in _METHODS)
    return next(filter(callable, methods), None)
