"""LexicalSimilarity: how alike an answer and its reference are written, character by character."""

from __future__ import annotations

from array import array
from operator import itemgetter
from os.path import commonprefix
from typing import Literal

import numpy as np
from pydantic import Field
from rapidfuzz.distance import Levenshtein

from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators.base import Execution
from agenteval_otel.evaluators.built_in import BuiltInEvaluator, TextField, reference_texts, text_at
from agenteval_otel.evaluators.words import collapsed, folded
from agenteval_otel.models import EvaluationInput, Score
from agenteval_otel.models.inputs import NO_GROUND_TRUTH


def sorensen_dice(first: str, second: str, size: int) -> float:
    """Return 2 x common / (distinct in the one + distinct in the other) of the texts' n-grams.

    The n-grams have `size` characters. Of a text shorter than an n-gram the whole text is the only
    one. Two empty texts are alike: 1.0.
    """
    if not first or not second:
        return float(first == second)
    has_bigrams = size == 2 and min(len(first), len(second)) >= 2
    if not (has_bigrams and first.isascii() and second.isascii()):
        grams = _ngrams(first, size)
        others = _ngrams(second, size)
        return 2 * len(grams & others) / (len(grams) + len(others))
    # the bigrams of ASCII in a table: a fraction of the time of sets
    seen = np.zeros((2, 1 << 14), np.bool_)
    for row, text in zip(seen, (first, second), strict=True):
        characters = np.frombuffer(text.encode(), np.uint8).astype(np.int64)
        bigrams = characters[:-1] << 7 | characters[1:]  # two characters of seven bits each
        row[bigrams] = True
    return 2 * int(np.count_nonzero(seen[0] & seen[1])) / int(np.count_nonzero(seen))


def _ngrams(text: str, size: int) -> set[str]:
    return {text[at : at + size] for at in range(max(1, len(text) - size + 1))}


def jaro_winkler(first: str, second: str) -> float:
    """Return Jaro's similarity, with Winkler's bonus for common leading characters.

    Jaro is (m/|a| + m/|b| + (m - t)/m) / 3, where m characters have an equal one at most max(|a|,
    |b|) // 2 - 1 places away in the other text, and t is half the number of those that stand in
    another order. The bonus is 0.1 for each of up to four common leading characters, as a share of
    what is missing to 1. It is given above 0.7. (M. A. Jaro 1989, W. E. Winkler 1990. Unlike in
    rapidfuzz, t is not rounded down.) A text without characters is like no other, but two of them
    are alike.
    """
    if first == second:
        return 1.0
    matched, other = _matched(first, second)
    if not matched:
        return 0.0
    matches = len(matched)
    out_of_order = sum(
        first[at] != second[place] for at, place in zip(matched, sorted(other), strict=True)
    )
    in_order = (matches - out_of_order / 2) / matches
    jaro = (matches / len(first) + matches / len(second) + in_order) / 3
    if jaro <= 0.7:
        return jaro
    common = len(commonprefix((first[:4], second[:4])))  # noqa: RUF071 - characters are meant
    return jaro + common * 0.1 * (1 - jaro)


def _matched(first: str, second: str) -> tuple[list[int], list[int]]:
    """Return the positions of matched characters in both texts.

    Each character is matched with the first unused one within reach.
    """
    reach = max(len(first), len(second)) // 2 - 1
    left: dict[str, list[int]] = {}
    for at in range(len(second) - 1, -1, -1):
        left.setdefault(second[at], []).append(at)
    matched = []
    other = []
    for at, char in enumerate(first):
        places = left.get(char)
        # Places too far left here stay too far left for the rest.
        while places and places[-1] < at - reach:
            places.pop()
        if places and places[-1] <= at + reach:
            matched.append(at)
            other.append(places.pop())
    return matched, other


def _utf16_units(text: str) -> str:
    """Return the text with each character beyond U+FFFF as two, the halves of its UTF-16 form."""
    if text.isascii():
        return text
    units = array("H", text.encode("utf-16-le", "surrogatepass"))
    return "".join(map(chr, units))


Algorithm = Literal["sorensen-dice", "jaro-winkler", "levenshtein"]

# Characters that are compared in about a millisecond.
_INLINE_UP_TO: dict[Algorithm, int] = {
    "sorensen-dice": 10_000,
    "jaro-winkler": 2_000,
    "levenshtein": 2_000,
}
_SHOWN_CHARACTERS = 100


class LexicalSimilarity(BuiltInEvaluator, type="LexicalSimilarity"):
    """Scores how alike the spelling of two texts is, 0 to 1.

    Equal texts score 1.0, texts with nothing in common 0.0. Meaning is ignored.

    ``sorensen-dice`` is 2 x common / (distinct in the one + distinct in the other) on sets of
    character n-grams (Dice 1945, Sorensen 1948). ``levenshtein`` is 1 - distance / longer length,
    with the least number of inserted, deleted and replaced characters as distance. ``jaro-winkler``
    looks for equal characters that stand near each other, and is made for names. Two empty texts
    are alike, an empty one is like no other. Of a list of references the most alike counts. A
    missing text gives a failed result, a missing reference a skip.

    Attributes:
        algorithm: ``sorensen-dice``, ``jaro-winkler`` or ``levenshtein``.
        ngram_size: Characters of an n-gram, for ``sorensen-dice``.
        case_sensitive: Without it both texts are lower-cased.
        normalize_whitespace: Trim both texts and turn each run of whitespace into one space.
        source_field: Where the text comes from (see `EvaluationInput.text_at`).
        reference_field: Where the reference text comes from.
        unit: What ``levenshtein`` and ``jaro-winkler`` count as one character. ``utf16`` counts an
            emoji as two. Letters with accents are composed (NFC) before, but for ``utf16``.
        max_characters: Compares only the first characters of each text, up to this many. Results
            report a cut.
        score_cutoff: A similarity below this scores 0.0. ``levenshtein`` then stops early.
        without_reference: ``skip`` inputs without a reference, or ``fail``.
    """

    algorithm: Algorithm = "sorensen-dice"
    ngram_size: int = Field(default=2, ge=1, le=16)
    case_sensitive: bool = False
    normalize_whitespace: bool = True
    source_field: TextField = "response"
    reference_field: TextField = "groundTruth"
    unit: Literal["character", "utf16"] = "character"
    max_characters: int = Field(default=10_000, ge=1, le=100_000)
    score_cutoff: float | None = Field(default=None, ge=0, le=1)
    without_reference: Literal["skip", "fail"] = "skip"

    def preferred_execution(self) -> Execution | None:
        return "inline" if self.max_characters <= _INLINE_UP_TO[self.algorithm] else "process"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        if self.without_reference == "skip":
            self._require_reference(evaluation_input)
        source_text = text_at(evaluation_input, self.source_field)
        texts = reference_texts(evaluation_input, self.reference_field)
        if not texts:
            raise EvaluationError(f"no text at {self.reference_field}", error_type="missing_text")
        source = self._prepared(source_text)
        compared = [(self._similarity(source, self._prepared(text)), text) for text in texts]
        similarity, best = max(compared, key=itemgetter(0))
        reference = self._prepared(best)
        is_below = self.score_cutoff is not None and similarity < self.score_cutoff
        below = f", below {self.score_cutoff:g}" if is_below else ""
        is_cut = max(len(source_text), len(best)) > self.max_characters
        of_several = f" (the most alike of {len(texts)})" if len(texts) > 1 else ""
        only = f", only the first {self.max_characters} characters" if is_cut else ""
        fields = f"{self.source_field or 'response'} and {self.reference_field or 'response'}"
        measure = f"{self.algorithm} of {fields}{of_several}"
        shown_source = source[:_SHOWN_CHARACTERS]
        shown_reference = reference[:_SHOWN_CHARACTERS]
        return Score(
            value=0.0 if is_below else similarity,
            reasoning=(
                f"{measure}: {similarity:.4f}{below}{only}. "
                f"Source: {shown_source}. Reference: {shown_reference}"
            ),
            metadata={"comparedCharacters": self.max_characters} if is_cut else None,
        )

    def _require_reference(self, evaluation_input: EvaluationInput) -> None:
        if evaluation_input.value_at(self.reference_field) is not None:
            return
        is_truth = self.reference_field.partition(".")[0] in ("groundTruth", "ground_truth")
        if is_truth and evaluation_input.ground_truth is None:
            raise EvaluationSkipped(NO_GROUND_TRUTH)
        raise EvaluationSkipped(f"nothing at {self.reference_field}")

    def _prepared(self, text: str) -> str:
        text = text[: self.max_characters]
        if self.unit == "utf16":  # as JavaScript compares: each code unit for itself
            text = text if self.case_sensitive else text.lower()
        else:
            text = folded(text, case_sensitive=self.case_sensitive)
        return collapsed(text) if self.normalize_whitespace else text

    def _similarity(self, source: str, reference: str) -> float:
        if self.algorithm == "sorensen-dice":
            return sorensen_dice(source, reference, self.ngram_size)
        if self.unit == "utf16":
            source = _utf16_units(source)
            reference = _utf16_units(reference)
        if self.algorithm == "jaro-winkler":
            return jaro_winkler(source, reference)
        return Levenshtein.normalized_similarity(source, reference, score_cutoff=self.score_cutoff)
