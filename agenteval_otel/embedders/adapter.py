"""CallableEmbedder: an object that embeds, by the method names of several libraries."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

from pydantic import Field

from agenteval_otel.components.loading import resolve_or_wrap
from agenteval_otel.embedders.base import Embedder
from agenteval_otel.errors import ConfigurationError

_METHODS = ("embed", "embed_documents", "encode")
# These take the texts as `values`, and return an object with the vectors.
_MODEL_METHODS = ("do_embed", "doEmbed")


class CallableEmbedder(Embedder):
    """An object of the program's that embeds, as an embedder; it stays in this process.

    Attributes:
        name: Names the object in the fingerprint of the evaluator that uses it.
        model: A function of the texts, or an object with ``embed(texts)``, ``embed_documents(texts)``,
            ``encode(texts)`` or ``do_embed(values=texts)``; sync or async. Left out of dumps.
    """

    name: str = ""
    model: Any = Field(exclude=True)

    @classmethod
    def of(cls, model: Any) -> Self:
        """The object as an embedder, named after its class; a function, after itself."""
        kind = model if inspect.isroutine(model) else type(model)
        return cls(name=f"{kind.__module__}.{kind.__qualname__}", model=model)

    @property
    def is_async(self) -> bool:
        """Whether the object's method is an ``async def``."""
        return inspect.iscoroutinefunction(self._call[0])

    def embed(self, texts: Sequence[str]) -> Any:
        """The object's vectors, in its own form; its exceptions are raised as they are."""
        call, by_name = self._call
        rows = call(values=list(texts)) if by_name else call(list(texts))
        return _awaited(rows) if inspect.isawaitable(rows) else _rows_of(rows)

    @cached_property
    def _call(self) -> tuple[Callable[..., Any], bool]:
        method = _method_of(self.model)
        if method is None:
            raise ConfigurationError(f"{type(self.model).__name__} has none of {', '.join(_METHODS)}", path="model")
        return method


def as_embedder(value: Any, *, path: str | None = None) -> Embedder:
    """An embedder from what a caller or a configuration may write.

    An `Embedder` stays as it is; a mapping is resolved by its ``type``; a type's name or an embedder's class becomes
    one with default settings; an object or a function that embeds becomes a `CallableEmbedder`.

    Raises:
        ConfigurationError: None of these, an unknown type, or wrong settings.
    """
    return resolve_or_wrap(
        Embedder, value, path=path,
        wrap=lambda model: CallableEmbedder.of(model) if _method_of(model) else None,
        expected="an embedder, an object with embed(texts)",
    )  # fmt: skip


def _method_of(model: Any) -> tuple[Callable[..., Any], bool] | None:
    if inspect.isroutine(model):
        return model, False
    for names, by_name in ((_METHODS, False), (_MODEL_METHODS, True)):
        for name in names:
            method = getattr(model, name, None)
            if callable(method):
                return method, by_name
    return None


async def _awaited(pending: Awaitable[Any]) -> Any:
    return _rows_of(await pending)


def _rows_of(result: Any) -> Any:
    """The vectors, where an object or a mapping holds them."""
    return result.get("embeddings") if isinstance(result, Mapping) else getattr(result, "embeddings", result)
