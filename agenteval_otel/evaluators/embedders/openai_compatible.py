"""The embedder behind ``/embeddings``, as OpenAI and many servers and gateways speak it."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from agenteval_otel.components.http_client.client import Attempts, HostedModel
from agenteval_otel.components.http_client.replies import count_of, encodable
from agenteval_otel.errors import ModelError
from agenteval_otel.evaluators.embedders.base import Embedder, EmbedderUsage, unit_rows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class OpenAICompatibleEmbedder(HostedModel, Embedder, type="openai_compatible"):
    """Asks a model by ``POST <base_url>/embeddings``, with up to `batch_size` texts per request.

    Without `api_key` and `api_key_env` no key is sent. Blank texts are not sent either: their rows
    are zeros. Nothing is kept between calls. Runs on the caller's event loop, and does not block
    it.

    Attributes:
        base_url: Address of the server, with the version's part of the path, as in
            ``https://api.openai.com/v1``.
        batch_size: Most texts of one request. The requests of a call follow each other within its
            one deadline.
        dimensions: Length of the vectors, for models that can shorten theirs. Vectors of another
            length are refused.
        encoding_format: ``base64`` is smaller and read faster, where the server knows it. Both
            forms are understood in any case. None leaves it to the server.
        max_characters: Longer texts are cut off. None sends all of a text, and a text that is too
            long for the model fails as ``context_overflow``.
    """

    client_modules: ClassVar[tuple[str, ...]] = ("httpx2", "numpy")
    error_class: ClassVar[type[ModelError]] = ModelError
    usage_class: ClassVar[type[EmbedderUsage]] = EmbedderUsage
    fingerprint_exclude: ClassVar[frozenset[str]] = HostedModel.fingerprint_exclude | {"batch_size"}

    batch_size: int = Field(default=16, ge=1, le=2_048)
    dimensions: int | None = Field(default=None, ge=1, le=65_536)
    encoding_format: Literal["float", "base64"] | None = None
    max_characters: int | None = Field(default=None, ge=1)
    max_answer_bytes: int = Field(default=2_097_152, ge=1_024, le=8_388_608)

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one row per text, of length 1. Raises `ModelError`.

        A blank text has a row of zeros.
        """
        return (await self.embedded(texts))[0]

    async def embedded(self, texts: Sequence[str]) -> tuple[NDArray[np.float32], EmbedderUsage]:
        """Return the vectors, with the requests and tokens that they took.

        The requests and tokens of failed attempts are included.
        """
        sent = [encodable(text[: self.max_characters]) for text in texts if text.strip()]
        rows: list[NDArray[np.float32]] = []
        calls = tokens = 0

        async def send(attempts: Attempts) -> None:
            """Send what has no rows yet: a retry does not repeat the requests before it."""
            nonlocal calls, tokens
            while part := sent[len(rows) :][: self.batch_size]:
                post = partial(self._post, "embeddings", self._body(part))
                message = await self._message(attempts, post, "\n".join(part))
                calls = attempts.calls
                tokens += count_of(message.get("usage"), "prompt_tokens")
                new_rows = _rows_of(message, len(part), self.dimensions)
                if rows and len(rows[0]) != new_rows.shape[1]:
                    raise _invalid(
                        f"embeddings of one call have {len(rows[0])} and {new_rows.shape[1]} dimensions"
                    )
                rows.extend(new_rows)

        try:
            if sent:
                await self._ask(send)
        except ModelError as failure:
            if failure.usage is not None:
                failure.usage = failure.usage.model_copy(update={"input_tokens": tokens})
            raise
        return self._with_blanks(texts, rows), EmbedderUsage(calls=calls, input_tokens=tokens)

    def _body(self, texts: list[str]) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "input": texts}
        if self.dimensions is not None:
            body["dimensions"] = self.dimensions
        if self.encoding_format is not None:
            body["encoding_format"] = self.encoding_format
        return body | self.extra_body

    def _with_blanks(
        self, texts: Sequence[str], rows: list[NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """Return the rows at the places of their texts, and zeros at those of blank texts."""
        import numpy as np

        if rows:
            self._last_width[0] = len(rows[0])
        vectors = np.zeros((len(texts), self.dimensions or self._last_width[0]), dtype=np.float32)
        if rows:
            places = [place for place, text in enumerate(texts) if text.strip()]
            vectors[places] = np.stack(rows)
        return vectors

    @cached_property
    def _last_width(self) -> list[int]:
        """Return a list of the last rows' length, for a call of nothing but blank texts."""
        return [1]


def _rows_of(message: Mapping[str, Any], count: int, dimensions: int | None) -> NDArray[np.float32]:
    """Return the rows of a response, of length 1, in the order of the texts.

    A row of zeros is refused: no model returns zeros for a text.
    """
    import numpy as np

    rows = [_row(item) for item in _in_order(message.get("data"), count)]
    lengths = {len(row) for row in rows}
    if len(lengths) > 1 or 0 in lengths or (dimensions is not None and lengths != {dimensions}):
        expected = (
            f"{dimensions} dimensions" if dimensions is not None else "one length that is not 0"
        )
        raise _invalid(
            f"the embeddings have the lengths {sorted(lengths)[:4]} instead of {expected}"
        )
    matrix = np.stack(rows)
    if not np.isfinite(matrix).all() or not matrix.any(axis=1).all():
        raise _invalid("an embedding is not finite, or all zeros")
    return unit_rows(matrix)


def _in_order(data: object, count: int) -> list[Any]:
    """Return the items by their ``index``, or in the response's order if no item has one."""
    if not isinstance(data, list) or not all(isinstance(item, Mapping) for item in data):
        raise ModelError("the response holds no list of embeddings", error_type="malformed_answer")
    if len(data) != count:
        raise _invalid(f"{len(data)} embeddings came for {count} texts")
    indexes = [item.get("index") for item in data]
    if all(index is None for index in indexes):
        return data
    if any(type(index) is not int for index in indexes) or sorted(indexes) != list(range(count)):
        raise _invalid("the embeddings are not numbered as the texts are")
    return sorted(data, key=lambda item: item["index"])


def _row(item: Mapping[str, Any]) -> NDArray[np.float64]:
    import numpy as np

    vector = item.get("embedding")
    # no base64, or a whole number of hundreds of digits
    with contextlib.suppress(ValueError, OverflowError):
        if isinstance(vector, str):
            return np.frombuffer(base64.b64decode(vector, validate=True), "<f4").astype(np.float64)
        # Type by type: numpy would make numbers of texts and truth values.
        if isinstance(vector, list) and set(map(type, vector)) <= {int, float}:
            return np.array(vector, dtype=np.float64)
    raise _invalid("an embedding is no list of finite numbers, and no base64 of them")


def _invalid(problem: str) -> ModelError:
    return ModelError(problem, error_type="invalid_embedding")
