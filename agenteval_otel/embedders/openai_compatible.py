"""The embedder that asks any model behind ``/embeddings``, as OpenAI and many servers and gateways speak it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from agenteval_otel.embedders.base import Embedded, Embedder, EmbedderUsage
from agenteval_otel.embedders.vectors import rows_of
from agenteval_otel.errors import EmbedderError, ModelError
from agenteval_otel.http_client.model import HostedModel, Try
from agenteval_otel.http_client.replies import count_of, encodable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["OpenAICompatibleEmbedder"]

_MAX_ANSWER_BYTES: Final = 2_097_152


class OpenAICompatibleEmbedder(HostedModel, Embedder, type="openai_compatible"):
    """Asks a model by ``POST <base_url>/embeddings``: the texts of a call together, `batch_size` at a time.

    Without `api_key` and `api_key_env` no key is sent. A text of nothing but space is not sent either: its row is
    zeros. Nothing is kept between calls. Runs on the event loop of whoever asks, and does not block it.

    Attributes:
        base_url: Where the server is, with the version's part of the path, as in ``https://api.openai.com/v1``.
        batch_size: Most texts of one request; the requests of a call follow each other within its one deadline.
        dimensions: How long the vectors are to be, for models that can shorten theirs; others' vectors are refused.
        encoding_format: What is asked for: ``base64`` is smaller and read faster, where the server knows it. Both are
            understood, whatever was asked for; None leaves it to the server.
        max_characters: What comes after so many characters of a text is left out; None sends all of it, and what is
            too long for the model fails as ``context_overflow``.
    """

    client_modules: ClassVar[tuple[str, ...]] = ("httpx2", "numpy")
    unversioned: ClassVar[frozenset[str]] = HostedModel.unversioned | {"batch_size"}

    batch_size: int = Field(default=16, ge=1, le=2_048)
    dimensions: int | None = Field(default=None, ge=1, le=65_536)
    encoding_format: Literal["float", "base64"] | None = None
    max_characters: int | None = Field(default=None, ge=1)
    max_answer_bytes: int = Field(default=_MAX_ANSWER_BYTES, ge=1_024, le=8_388_608)

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row a text, of length 1; zeros where a text is blank. Ends at the deadline at the latest.

        Raises:
            EmbedderError: It failed; ``error_type`` says how.
        """
        vectors: NDArray[np.float32] = (await self.embedded(texts)).vectors
        return vectors

    async def embedded(self, texts: Sequence[str]) -> Embedded:
        """What `embed` gives, with the requests and the tokens that it took, those of a failure included."""
        batch = _Asked([encodable(text[: self.max_characters]) for text in texts if text.strip()])
        try:
            if batch.texts:
                await self._ask(lambda tried: self._rest_of(batch, tried))
        except EmbedderError as failure:
            if failure.usage is not None:
                failure.usage = failure.usage.model_copy(update={"input_tokens": batch.tokens})
            raise
        return Embedded(self._placed(texts, batch), EmbedderUsage(calls=batch.calls, input_tokens=batch.tokens))

    async def _rest_of(self, batch: _Asked, tried: Try) -> None:
        """Ask for what is missing; after a failure, what came before it is not asked for again."""
        while part := batch.texts[len(batch.rows) :][: self.batch_size]:
            send = partial(self._post, path="embeddings", body=self._body(part))
            message = await tried.message(send, "\n".join(part))
            batch.calls = tried.calls
            batch.tokens += count_of(message.get("usage"), "prompt_tokens")
            rows = rows_of(message, len(part), self.dimensions)
            if batch.rows and len(batch.rows[0]) != rows.shape[1]:
                problem = f"embeddings of one call have {len(batch.rows[0])} and {rows.shape[1]} dimensions"
                raise ModelError(problem, error_type="invalid_embedding")
            batch.rows.extend(rows)

    def _body(self, texts: list[str]) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "input": texts}
        if self.dimensions is not None:
            body["dimensions"] = self.dimensions
        if self.encoding_format is not None:
            body["encoding_format"] = self.encoding_format
        return body | self.extra_body

    def _placed(self, texts: Sequence[str], batch: _Asked) -> NDArray[np.float32]:
        """The rows where their texts stand, zeros elsewhere."""
        import numpy as np

        if batch.rows:
            self._width[0] = len(batch.rows[0])
        vectors = np.zeros((len(texts), self.dimensions or self._width[0]), dtype=np.float32)
        if batch.rows:
            vectors[[place for place, text in enumerate(texts) if text.strip()]] = np.stack(batch.rows)
        return vectors

    @cached_property
    def _width(self) -> list[int]:
        """How long the last rows were, for a call of nothing but blank texts."""
        return [1]

    def _failed(self, error: ModelError, calls: int) -> EmbedderError:
        return EmbedderError(
            str(error), error_type=error.error_type, retryable=error.retryable, retry_after_s=error.retry_after_s,
            usage=EmbedderUsage(calls=calls) if calls else None,
        )  # fmt: skip


class _Asked:
    """The texts of one call that are sent, and what came for them so far."""

    def __init__(self, texts: list[str]) -> None:
        self.texts, self.calls, self.tokens = texts, 0, 0
        self.rows: list[NDArray[np.float32]] = []
