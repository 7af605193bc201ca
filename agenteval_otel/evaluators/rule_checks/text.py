"""Checks of text: its length, a pattern, substrings, how often keywords occur."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from agenteval_otel.evaluators.rule_checks.base import MANY, Broken, RuleModel, Verdict, is_original
from agenteval_otel.evaluators.words import Terms, folded
from agenteval_otel.patterns import JsPattern, check_flags, compile_pattern

__all__ = ["IncludesCheck", "KeywordCountCheck", "LengthCheck", "RegexCheck"]


class LengthCheck(RuleModel):
    """Bounds on the length in UTF-16 units, inclusive, nothing trimmed; without bounds every text passes."""

    type: Literal["length"] = "length"
    min: float | None = None
    max: float | None = None

    @model_validator(mode="after")
    def _bounds_leave_room(self, info: ValidationInfo) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max and not is_original(info):
            raise ValueError(f"no text is at least {self.min:g} and at most {self.max:g} long")
        return self

    def verdict(self, value: Any, text: str, *, limit_s: float) -> Verdict:
        """Judge the text."""
        length = len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
        if self.min is not None and length < self.min:
            return Broken("too_short")
        return Broken("too_long") if self.max is not None and length > self.max else None


class RegexCheck(RuleModel):
    """A JavaScript pattern that must occur (``match``) or must not (``no_match``, also when nothing is said)."""

    type: Literal["regex"] = "regex"
    flags: str = ""
    pattern: str
    expected_outcome: Literal["match", "no_match"] = "no_match"

    @field_validator("flags", mode="before")
    @classmethod
    def _flags_are_known(cls, value: Any) -> Any:
        if value is None:
            return ""
        if isinstance(value, str):
            check_flags(value)
        return value

    @field_validator("pattern")
    @classmethod
    def _pattern_compiles(cls, value: str, info: ValidationInfo) -> str:
        if "flags" in info.data:
            compile_pattern(value, info.data["flags"])
        return value

    @field_validator("expected_outcome", mode="before")
    @classmethod
    def _original_outcome(cls, value: Any, info: ValidationInfo) -> Any:
        return "no_match" if is_original(info) and value != "match" else value

    @cached_property
    def _compiled(self) -> JsPattern:
        return compile_pattern(self.pattern, self.flags)

    @property
    def is_quick(self) -> bool:
        """Whether the pattern is searched in linear time."""
        return self._compiled.linear is not None

    def verdict(self, value: Any, text: str, *, limit_s: float) -> Verdict:
        """Search the text for at most `limit_s` seconds; raises TimeoutError beyond."""
        found = self._compiled.found(text, limit_s=limit_s)
        if self.expected_outcome == "match":
            return None if found else Broken("pattern_missing")
        return Broken("forbidden_pattern") if found else None


class IncludesCheck(RuleModel):
    """Substrings, not words, of which all, any or none must occur; an empty one always occurs."""

    type: Literal["includes"] = "includes"
    keywords: tuple[str, ...]
    case_sensitive: bool = False
    expected_outcome: Literal["all", "any", "none"] = "all"

    @cached_property
    def _wanted(self) -> tuple[str, ...]:
        return self.keywords if self.case_sensitive else tuple(keyword.lower() for keyword in self.keywords)

    @property
    def is_quick(self) -> bool:
        return len(self.keywords) <= MANY

    def verdict(self, value: Any, text: str, *, limit_s: float) -> Verdict:
        """Judge the text."""
        text = text if self.case_sensitive else text.lower()
        found = (keyword in text for keyword in self._wanted)
        if self.expected_outcome == "none":
            return Broken("forbidden_keyword") if any(found) else None
        passed = all(found) if self.expected_outcome == "all" else any(found)
        return None if passed else Broken("missing_keyword")


class KeywordCountCheck(RuleModel):
    """Bounds on how often keywords occur, all of them taken together; at least one of the bounds must be given.

    What a whole word is: see `KeywordCoverage`. A keyword that is listed twice counts once; occurrences of one keyword
    do not overlap, a keyword inside of another counts for itself.
    """

    type: Literal["keyword_count"] = "keyword_count"
    keywords: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...]
    min: int | None = Field(default=None, ge=0)
    max: int | None = Field(default=None, ge=0)
    case_sensitive: bool = False
    match_whole_word: bool = True

    @model_validator(mode="after")
    def _something_is_asked_for(self) -> Self:
        if not self.keywords:
            raise ValueError("keywords must name at least one keyword")
        if self.min is None and self.max is None:
            raise ValueError("expected min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"nothing occurs at least {self.min} and at most {self.max} times")
        return self

    @cached_property
    def _terms(self) -> Terms:
        forms = (folded(keyword, case_sensitive=self.case_sensitive) for keyword in self.keywords)
        return Terms(forms, whole_words=self.match_whole_word)

    @property
    def is_quick(self) -> bool:
        return len(self.keywords) <= MANY

    def verdict(self, value: Any, text: str, *, limit_s: float) -> Verdict:
        """Count them."""
        count = self._terms.count(folded(text, case_sensitive=self.case_sensitive))
        if self.min is not None and count < self.min:
            return Broken("too_few_keywords", f"{count}, at least {self.min}")
        if self.max is not None and count > self.max:
            return Broken("too_many_keywords", f"{count}, at most {self.max}")
        return None
