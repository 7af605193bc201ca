"""Vectors: what the rows of models have to be, and how they become rows of length 1."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agenteval_otel.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["rows_of", "unit_rows"]


def rows_of(message: Mapping[str, Any], count: int, dimensions: int | None) -> NDArray[np.float32]:
    """The rows of a response of ``/embeddings``, of length 1, in the order of the texts.

    Args:
        message: The response's JSON object.
        count: How many texts were asked for.
        dimensions: How long a row has to be; None for any length.

    Raises:
        ModelError: (``invalid_embedding``) Not one row a text, or an invalid row: of another length, no numbers,
            not finite, or nothing but zeros, which no model gives for a text.
    """
    import numpy as np

    rows = [_row(item) for item in _in_order(message.get("data"), count)]
    lengths = {len(row) for row in rows}
    if len(lengths) > 1 or 0 in lengths or (dimensions is not None and lengths != {dimensions}):
        expected = f"{dimensions} dimensions" if dimensions is not None else "one length that is not 0"
        raise _invalid(f"the embeddings have the lengths {sorted(lengths)[:4]} instead of {expected}")
    matrix = np.stack(rows)
    if not np.isfinite(matrix).all():
        raise _invalid("an embedding is not finite")
    if not matrix.any(axis=1).all():
        raise _invalid("an embedding is all zeros")
    return unit_rows(matrix)


def unit_rows(rows: Any) -> NDArray[np.float32]:
    """The rows divided by their lengths; one of zeros stays. Finite numbers of any size."""
    import numpy as np

    matrix: NDArray[np.float64] = np.asarray(rows, dtype=np.float64)
    largest = np.abs(matrix).max(axis=1, keepdims=True, initial=0.0)
    matrix = np.divide(matrix, largest, out=np.zeros_like(matrix), where=largest > 0.0)  # no square runs over
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    np.divide(matrix, lengths, out=matrix, where=lengths > 0.0)
    return matrix.astype(np.float32)


def _in_order(data: Any, count: int) -> list[Any]:
    """The items by their ``index``; as they come where none has one."""
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
    if isinstance(vector, str):
        try:
            return np.frombuffer(base64.b64decode(vector, validate=True), "<f4").astype(np.float64)
        except (ValueError, binascii.Error):
            raise _invalid("an embedding is no base64 of numbers") from None
    # Type by type: numpy would make numbers of texts and truth values.
    if not isinstance(vector, list) or not set(map(type, vector)) <= {int, float}:
        raise _invalid("an embedding is no list of numbers")
    try:
        return np.array(vector, dtype=np.float64)
    except OverflowError:  # a whole number of hundreds of digits
        raise _invalid("an embedding is not finite") from None


def _invalid(what: str) -> ModelError:
    return ModelError(what, error_type="invalid_embedding")
