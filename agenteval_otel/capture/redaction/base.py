"""Contract of redactors: text in, text out, with what must not leave the process replaced."""

from __future__ import annotations

from agenteval_otel.components import Component

__all__ = ["Redactor"]


class Redactor(Component, contract="redactor"):
    """Takes out of text what must not leave the process. Implement `redact`.

    It runs on the background thread, for every text that leaves: keep it linear in the length, without network calls.
    What it raises costs the field: a marker leaves in its place, never the text as it was.
    """

    def redact(self, text: str) -> str:
        """The text to let out; the same object when there is nothing to take out. Redacting again changes nothing."""
        raise NotImplementedError
