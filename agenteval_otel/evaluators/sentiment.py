"""Sentiment: how a text sounds by the words and emoji that a lexicon lists."""

from __future__ import annotations

import hashlib
import importlib.util
import math
import re
from collections.abc import Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self

from pydantic import model_validator

from agenteval_otel.evaluators.base import Execution
from agenteval_otel.evaluators.built_in import (
    BuiltInEvaluator,
    TextField,
    listed,
    read_text,
    text_at,
)
from agenteval_otel.evaluators.words import WHITESPACE
from agenteval_otel.models import EvaluationCriteria, EvaluationInput, Score, ScoreValue
from agenteval_otel.runtime.text import composed

BUILTIN: Final = "builtin"
AFINN: Final = "afinn"
_LOWEST = -5
_HIGHEST = 5
_FILES = Path(__file__).parent / "lexicon"

OutputType = Literal["comparativeNormalized", "rawScore", "category"]
_KEPT_WORDS = 1_000
_SCALES: dict[OutputType, str] = {
    "comparativeNormalized": "numeric",
    "rawScore": "raw",
    "category": "category",
}


class Sentiment(BuiltInEvaluator, type="Sentiment"):
    """Scores the sentiment of a text: the sum of the values that a lexicon has for its words.

    Each value is from -5 to 5. A value changes its sign when a negator ("not", "don't", ...) stands
    directly before the word. The comparative score is the sum divided by the number of all words
    (AFINN's arithmetic, F. A. Nielsen 2011). A blank text is neutral. A missing text gives a failed
    result.

    Attributes:
        source_text_field: Where the text comes from (see `EvaluationInput.text_at`).
        output_type: ``comparativeNormalized`` is (comparative + 5) / 10, 0 to 1, 0.5 for neutral.
            ``rawScore`` is the sum. ``category`` is ``positive``, ``negative`` or ``neutral``.
        positive_threshold: Comparative score above which the category is ``positive``.
        negative_threshold: Comparative score below which it is ``negative``.
        agentdock_tokens: Split text and find negations as AgentDock does: a tab joins two words,
            typographic apostrophes negate nothing, an emoji counts only where it stands alone.
        lexicon: ``builtin`` (the package's own English one), ``afinn`` (AFINN-165, from the extra
            ``sentiment``, with the package's emoji), or the path of a file with
            ``word<TAB>value`` lines.
        scale: By default ``numeric`` for ``comparativeNormalized``, and ``raw`` or ``category`` for
            the others.
    """

    source_text_field: TextField = "response"
    output_type: OutputType = "comparativeNormalized"
    positive_threshold: float = 0.2
    negative_threshold: float = -0.2
    agentdock_tokens: bool = False
    lexicon: str = BUILTIN

    @model_validator(mode="before")
    @classmethod
    def _scale_of_output(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        output_type = data.get("output_type", data.get("outputType"))
        scales: Mapping[Any, str] = _SCALES
        if output_type not in (*scales,):  # a tuple: the value may have no hash
            return data
        return {"scale": scales[output_type], **data}

    @model_validator(mode="after")
    def _has_lexicon(self) -> Self:
        try:
            _ = self._lexicon  # read now and kept, whatever becomes of its file
        except ValueError as error:
            raise ValueError(f"lexicon: {error}") from None
        return self

    @model_validator(mode="after")
    def _categories_are_apart(self) -> Self:
        if self.output_type == "category" and self.negative_threshold >= self.positive_threshold:
            raise ValueError("negative_threshold must be below positive_threshold")
        return self

    def preferred_execution(self) -> Execution | None:
        return "inline"

    def fingerprint_source(self) -> str:
        return f"{super().fingerprint_source()} {self._lexicon.digest}"

    def filler(self, criterion: EvaluationCriteria) -> ScoreValue:
        return "neutral" if self.output_type == "category" else 0

    def score(self, evaluation_input: EvaluationInput) -> Score:
        text = text_at(evaluation_input, self.source_text_field)
        if not text.strip(WHITESPACE):
            return Score(value=self._output(0, 0.0), reasoning="the text is blank")
        words = agentdock_tokens(text) if self.agentdock_tokens else tokens(text)
        total, positive, negative = self._sum(words)
        comparative = total / max(1, len(words))
        figures = f"raw score {total:g} of {len(words)} words, comparative {comparative:.4f}"
        reasoning = f"{figures}. Positive: {listed(positive)}. Negative: {listed(negative)}"
        metadata = {
            "rawScore": total,
            "comparativeScore": comparative,
            "positiveWords": positive[:_KEPT_WORDS],
            "negativeWords": negative[:_KEPT_WORDS],
        }
        return Score(value=self._output(total, comparative), reasoning=reasoning, metadata=metadata)

    @cached_property
    def _lexicon(self) -> Lexicon:
        return load_lexicon(self.lexicon)

    def _sum(self, words: list[str]) -> tuple[int | float, list[str], list[str]]:
        """Return the sum, and the words on either side of zero after negation.

        The words are in order from the end of the text.
        """
        values = self._lexicon.values
        negators = _ORIGINAL_NEGATORS if self.agentdock_tokens else _NEGATORS
        counted: list[tuple[int | float, str]] = []
        for at, word in enumerate(words):
            if word not in values:
                continue
            is_negated = at > 0 and words[at - 1] in negators
            value = -values[word] if is_negated else values[word]
            counted.append((value, word))
        counted.reverse()
        total = sum(value for value, _ in counted)
        positive = [word for value, word in counted if value > 0]
        negative = [word for value, word in counted if value < 0]
        return total, positive, negative

    def _output(self, total: int | float, comparative: float) -> ScoreValue:
        if self.output_type == "rawScore":
            return total
        if self.output_type == "comparativeNormalized":
            return min(1.0, max(0.0, (comparative + 5) / 10))
        if comparative > self.positive_threshold:
            return "positive"
        return "negative" if comparative < self.negative_threshold else "neutral"


class Lexicon(NamedTuple):
    """Holds values by lower-cased word, and a digest that changes with them."""

    values: Mapping[str, int | float]
    digest: str


def load_lexicon(name: str) -> Lexicon:
    """Load the lexicon of a name (``builtin``, ``afinn``), or of a UTF-8 file.

    The file has ``word<TAB>value`` lines, with values from -5 to 5. Empty lines and lines that
    begin with ``#`` are ignored. ValueError names the line that is wrong.
    """
    if name in (BUILTIN, AFINN):
        return _packaged(_FILES / "words.tsv" if name == BUILTIN else _afinn())
    try:
        return _lexicon_of(read_text(name))
    except ValueError as error:
        raise ValueError(
            f'expected "{BUILTIN}", "{AFINN}" or the path of a lexicon file: {error}'
        ) from None


@lru_cache(maxsize=2)
def _packaged(words_file: Path) -> Lexicon:
    words = words_file.read_text("utf-8")
    emoji = (_FILES / "emoji.tsv").read_text("utf-8")
    return _lexicon_of(f"{words}\n{emoji}")


def _afinn() -> Path:
    # Its data is read where it is installed; its code is not run.
    spec = importlib.util.find_spec("afinn")
    if spec is None or spec.origin is None:
        raise ValueError(
            'the lexicon afinn is not installed: pip install "agenteval-otel[sentiment]", or choose "builtin" or a file'
        )
    return Path(spec.origin).parent / "data" / "AFINN-en-165.txt"


def _lexicon_of(content: str) -> Lexicon:
    values: dict[str, int | float] = {}
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        word, tab, value = line.partition("\t")
        word = word.strip().lower()
        if not tab or not word:
            raise ValueError(
                f"line {number}: expected a word, a tab and a number, found {line[:60]!r}"
            )
        try:
            amount = float(value)
        except ValueError:
            amount = math.nan
        if not _LOWEST <= amount <= _HIGHEST:
            text = value.strip()[:60]
            raise ValueError(
                f"line {number}: expected a number from {_LOWEST} to {_HIGHEST}, found {text!r}"
            )
        values[word] = int(amount) if amount.is_integer() else amount
    return Lexicon(values, hashlib.sha256(content.encode()).hexdigest()[:12])


_ORIGINAL_WORDS = "not non cant can't dont don't doesnt doesn't wont won't isnt isn't"
# The original looks it up in a JavaScript object, which inherits this key.
_ORIGINAL_NEGATORS = frozenset([*_ORIGINAL_WORDS.split(), "constructor"])
_VERBS = "are could did does do had has have is must need should was were wo would ca ai"
_NEGATED_VERBS = [f"{verb}n't" for verb in _VERBS.split()]
_WITHOUT_APOSTROPHE = [verb.replace("'", "") for verb in _NEGATED_VERBS]
_NEGATORS = frozenset(
    [*_ORIGINAL_WORDS.split(), "cannot", "never", *_NEGATED_VERBS, *_WITHOUT_APOSTROPHE]
)

_ASCII_WORD = re.compile(r"[a-z0-9]+(?:['-][a-z0-9]+)*")
# A word of any script, or one emoji; skin tones, variation selectors and joiners are neither.
_WORD = re.compile(
    r"[^\W_]+(?:['-][^\W_]+)*|[\u2600-\u27bf\u2b50\u2b55\U0001f300-\U0001f3fa\U0001f400-\U0001faff]"
)
_APOSTROPHES = str.maketrans(dict.fromkeys("\u2019\u2018\u02bc\uff07", "'"))

_ORIGINAL_PUNCTUATION = str.maketrans(dict.fromkeys('.,/#!?$%^&*;:{}=_`"~()\n', " "))
_RUN = re.compile(f"[{WHITESPACE}]{{2,}}")


def tokens(text: str) -> list[str]:
    """Return the words in lower case, and each emoji by itself.

    Apostrophes (typographic ones become straight) and hyphens inside a word belong to it. All else
    separates words.
    """
    text = text.lower()
    if text.isascii():
        return _ASCII_WORD.findall(text)
    return _WORD.findall(composed(text.translate(_APOSTROPHES)))


def agentdock_tokens(text: str) -> list[str]:
    """Return the words as AgentDock splits them.

    It splits at spaces, line ends, some punctuation and runs of whitespace. Text without words
    gives one empty token.
    """
    text = text.lower().translate(_ORIGINAL_PUNCTUATION)
    text = _RUN.sub(" ", text).strip(WHITESPACE)
    return text.split(" ")
