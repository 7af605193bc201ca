"""Redactors: the contract, and `PatternRedactor`.

It finds secrets, personal data and what the user's own patterns match.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final, Literal

from pydantic import Field, field_validator

from agenteval_otel.capture.redaction.personal import (
    find_emails,
    find_glued_cards,
    find_ibans,
    find_ipv6,
    find_numbers,
    without_listed_emails,
)
from agenteval_otel.capture.redaction.reading import PlainText
from agenteval_otel.capture.redaction.scan import Finding, Scan, merged
from agenteval_otel.capture.redaction.secrets import find_secrets, has_token_prefix
from agenteval_otel.components import Component
from agenteval_otel.components.loading import load_each, resolve
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.runtime.patterns import Pattern, compile_pattern
from agenteval_otel.runtime.reentrancy import sign_of_life
from agenteval_otel.runtime.text import lazily

Kind = Literal["secrets", "email", "card", "phone", "iban", "ip", "ssn"]
KINDS: Final[tuple[Kind, ...]] = ("secrets", "email", "card", "phone", "iban", "ip", "ssn")
_FINDERS: Final = {
    "secrets": find_secrets,
    "email": find_emails,
    "iban": find_ibans,
    "ip": find_ipv6,
}
_NAME: Final = lazily(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
# Replacing a finding may reveal another one next to it, so a text is scanned again. Longer texts
# get fewer passes.
_MAX_PASSES: Final = 10
_SCANNED_CHARS: Final = 512 * 1024
# Ids that services make hold digits in every form; they are no numbers. The second kind are those
# of model responses.
_ID: Final = lazily(
    r"(?:[A-Za-z]{1,12}[-_])?(?:[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r"|(?:chatcmpl-|resp_|msg_(?:bdrk_|vrtx_)?)[A-Za-z0-9]{16,64}"
)
_MARKER: Final = lazily(r"\[[A-Z][A-Z0-9_-]{0,31}\]")


class Redactor(Component, contract="redactor"):
    """Takes out of text what must not leave the process. Implement `redact`.

    It runs on the background thread, for every text that leaves: keep it linear in the length,
    without network calls. Where it raises, a marker leaves in place of the field.
    """

    def redact(self, text: str) -> str:
        """Return the text to let out.

        It is the same object if there is nothing to take out. Redacting again changes
        nothing.
        """
        raise NotImplementedError


class PatternRedactor(Redactor, type="patterns"):
    """Replaces what its patterns find by a marker.

    The markers are ``[SECRET]``, ``[EMAIL]``, ``[CARD]``, ``[PHONE]``, ``[IBAN]``, ``[IP]`` and
    ``[SSN]``.

    Cards and account numbers are known by their check digits, secrets by their form or by the name
    that they are given to, telephone numbers by their form or the word before them. Patterns
    guarantee nothing: names, addresses and secrets of an unknown form stay.

    Attributes:
        kinds: Which of the built-in kinds are looked for.
        patterns: Own ones, as regular expressions by name: ``{"customer": "C-[0-9]{6}"}`` gives
            ``[CUSTOMER]``.
        limit_s: Time limit of one own pattern on one text, in seconds. Beyond it, a marker replaces
            the whole field.
    """

    kinds: tuple[Kind, ...] = KINDS
    patterns: dict[str, str] = Field(default_factory=dict)
    limit_s: float = Field(default=1.0, gt=0)

    @field_validator("patterns")
    @classmethod
    def _can_be_used(cls, value: dict[str, str]) -> dict[str, str]:
        for name, pattern in value.items():
            if not _NAME.fullmatch(name):
                raise ValueError(
                    f"{name!r} must be a letter a-z or A-Z, then at most 31 of these, digits, '_', '-'"
                )
            if compile_pattern(pattern).occurs_in(""):
                raise ValueError(f"{name!r} matches the empty text")
        return value

    @cached_property
    def _own(self) -> tuple[tuple[str, Pattern], ...]:
        return tuple(
            (f"[{name.upper()}]", compile_pattern(pattern))
            for name, pattern in self.patterns.items()
        )

    def redact(self, text: str) -> str:
        """Return the text with markers in place of what was found.

        Raise `TimeoutError` if an own pattern took too long.
        """
        if not self.patterns and _holds_nothing(text):
            return text
        if "email" in self.kinds and not self.patterns:
            text = without_listed_emails(text)
        affordable_passes = max(1, _SCANNED_CHARS // max(1, len(text)))
        for _ in range(min(_MAX_PASSES, affordable_passes)):
            redacted = _replaced(text, self.findings(text))
            if redacted == text:
                break
            text = redacted
        return text

    def findings(self, text: str) -> list[Finding]:
        """Return what would be replaced: in order, without overlaps."""
        all_findings = [] if _holds_nothing(text) else list(self._built_in(text))
        if self.patterns:
            # Markers that stand in the text already replace themselves, so that no pattern bites
            # into one.
            all_findings += (Finding(*match.span(), match[0]) for match in _MARKER.finditer(text))
            for marker, pattern in self._own:
                sign_of_life(self.limit_s)
                all_findings += (
                    Finding(*span, marker) for span in pattern.spans(text, limit_s=self.limit_s)
                )
        return merged(all_findings)

    def _built_in(self, text: str) -> Iterator[Finding]:
        reading = PlainText(text)
        scan = Scan(reading.text)
        if not reading.differs:
            yield from self._plain_findings(scan)
            return
        for start, end, marker in self._plain_findings(scan):
            yield Finding(*reading.span(start, end), marker)
        if "secrets" in self.kinds:
            # As it stands too: an encoded sign may end a value here, and be a part of it there.
            yield from find_secrets(Scan(text))

    def _plain_findings(self, scan: Scan) -> Iterator[Finding]:
        taken: list[Finding] = []
        for kind, find in _FINDERS.items():
            if kind not in self.kinds:
                continue
            findings = list(find(scan))
            yield from findings
            if kind in ("iban", "ip"):
                taken += findings
        numbers = {"card", "phone", "ip", "ssn"}.intersection(self.kinds)
        if numbers:
            yield from find_numbers(scan, numbers, sorted(taken))
        if "card" in self.kinds:
            yield from find_glued_cards(scan)


def _holds_nothing(text: str) -> bool:
    """Tell whether no built-in kind can be in the text: it is too short, or an id of a known form."""
    return len(text) < 6 or (_ID.fullmatch(text) is not None and not has_token_prefix(text))


def _replaced(text: str, findings: list[Finding]) -> str:
    if not findings:
        return text
    parts: list[str] = []
    done = 0
    sign_of_life()
    for start, end, marker in findings:
        parts += (text[done:start], marker)
        done = end
    return "".join((*parts, text[done:]))


def default_redactors() -> tuple[Redactor, ...]:
    """Return the default: every built-in kind."""
    return (PatternRedactor(),)


def load_redactors(value: object, *, path: str) -> tuple[Redactor, ...]:
    """Return redactors from one or several instances or ``{type: ...}`` mappings.

    None is the default. An empty list gives none.
    """
    if value is None:
        return default_redactors()
    if isinstance(value, Redactor | Mapping):
        return (resolve(Redactor, value, path=path),)
    if not isinstance(value, list | tuple):
        raise ConfigurationError(
            f"expected a list of redactors, found {type(value).__name__}", path=path
        )
    return load_each(lambda entry, path: resolve(Redactor, entry, path=path), value, path=path)
