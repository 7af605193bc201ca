"""The built-in embedder: words and pieces of words, hashed into a vector.

It compares wording, not meaning.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from pydantic import Field

from agenteval_otel.evaluators.embedders.base import Embedder
from agenteval_otel.runtime.text import composed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_WORD = re.compile(r"[^\W_]+")
_MIN_GRAM = 3
_MAX_GRAM = 5
_SPACE = 32
# Multiplicative hashing: the golden ratio's fraction, and a finaliser, so that neighbours in the
# code table are spread.
_FACTOR = 0x9E3779B97F4A7C15
_FINAL = 0xD6E8FEB86659FD93
_HALF = 32  # of the 64 bits of a hash

# Words of any English sentence; without "no", "not" and "nor", which reverse an answer.
_SENTENCE_WORDS = (
    "a an the this that these those i you he she it we they me him her us them my your his its our their is am are was "
    "were be been being do does did have has had will would shall should can could may might must of to in on at by "
    "for from with as into about and or but if then than so there here what which who when where why how also just "
    "very too"
)
_FREQUENT = frozenset(_SENTENCE_WORDS.split())


class HashingEmbedder(Embedder, type="hashing"):
    """Compares wording: two texts are near when they share words, or pieces of words.

    A paraphrase in other words is far, and an answer that says the contrary in the same words is
    near. Meaning needs an embedder with a model. This one needs no model, network or training, and
    returns the same numbers everywhere.

    Each distinct word, and each run of 3 to 5 characters in it with its borders, adds to one place
    of the vector or subtracts from it (signed feature hashing: Weinberger et al. 2009). Frequent
    English words count less. Time grows with the text, up to `max_characters`. Blocks: about a
    quarter of a millisecond for 1 KB.

    Attributes:
        dimensions: Length of the vectors. With fewer, more words share a place.
        max_characters: Longer texts are cut off.
        gram_weight: Weight of a piece of a word. A whole word's is 1.
        frequent_weight: Weight of a frequent English word and its pieces. Any other's is 1.
    """

    dimensions: int = Field(default=2048, ge=16, le=65_536)
    max_characters: int = Field(default=65_536, ge=1, le=1_048_576)
    gram_weight: float = Field(default=0.35, ge=0, le=10)
    frequent_weight: float = Field(default=0.2, ge=0, le=1)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one row per text, of length 1.

        A text with neither letters nor digits has a row of zeros.
        """
        import numpy as np

        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            weights = self._weights(text)
            if weights:
                row[:] = self._vector(weights)
        return rows

    def _weights(self, text: str) -> dict[str, float]:
        # Cut twice: the composed form may be longer.
        normalized = composed(text[: self.max_characters], "NFKC")
        folded = normalized[: self.max_characters].casefold()
        weights: dict[str, float] = {}
        for word, count in Counter(_WORD.findall(folded)).items():
            word_weight = self.frequent_weight if word in _FREQUENT else 1.0
            weights[word] = (1.0 + math.log(count)) * word_weight
        return weights

    def _vector(self, weights: dict[str, float]) -> NDArray[np.float64]:
        import numpy as np

        words = list(weights)
        word_weights = np.fromiter(weights.values(), np.float64, len(words))
        hashes = np.fromiter(
            (crc32(word.encode("utf-8", "surrogatepass")) for word in words), np.uint64, len(words)
        )
        # Pieces are hashed apart from words: a word of three letters has another place than its
        # piece.
        grams, gram_weights = _grams(words, word_weights * self.gram_weight)
        mixed = _mixed(np.concatenate((hashes, grams)))
        values = np.concatenate((word_weights, gram_weights))
        signed = np.where(mixed >> np.uint64(63), values, -values)
        places = (mixed % np.uint64(self.dimensions)).astype(np.int64)
        vector = np.bincount(places, weights=signed, minlength=self.dimensions).astype(np.float64)
        length = math.sqrt(float(vector @ vector))
        return vector / length if length > 0.0 else vector


def _grams(
    words: list[str], weights: NDArray[np.float64]
) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
    """Return the hash of each piece of each word, and its weight. `weights` are by word."""
    import numpy as np

    line = f" {' '.join(words)} ".encode("utf-32-le", "surrogatepass")
    codes = np.frombuffer(line, np.uint32).astype(np.uint64)
    lengths = np.fromiter(map(len, words), np.int64, len(words)) + 1  # with the border in front
    weight_at = np.repeat(weights, lengths)
    is_border = codes == _SPACE
    factor = np.uint64(_FACTOR)
    hashes = codes * factor
    hashed = [np.zeros(0, np.uint64)]
    is_in_word = np.ones(len(codes), bool)  # the piece from this place on has no border within
    values = [np.zeros(0)]
    for size in range(2, min(_MAX_GRAM, len(codes)) + 1):
        # One more character at the end of each: a polynomial, modulo 2**64.
        hashes = hashes[:-1] * factor + codes[size - 1 :]
        is_in_word = is_in_word[:-1]
        if size > 2:
            is_in_word = is_in_word & ~is_border[size - 2 : -1]
        if size >= _MIN_GRAM:
            hashed.append(hashes[is_in_word])
            values.append(weight_at[: len(hashes)][is_in_word])
    return np.concatenate(hashed), np.concatenate(values)


def _mixed(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    import numpy as np

    half = np.uint64(_HALF)
    final = np.uint64(_FINAL)
    for _ in range(2):
        hashes = (hashes ^ (hashes >> half)) * final
    return hashes ^ (hashes >> half)
