"""Which answer a piece of feedback is about: by its reference, its trace and span, or an id that
the answer has.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

from opentelemetry.trace import SpanContext

_MAX_IDS: Final = 40_000  # of about 10,000 answers
_MAX_SEEN: Final = 10_000


class RecentAnswer(NamedTuple):
    """An evaluated answer, as far as feedback needs it.

    Attributes:
        call_id: Its own id, for the results that feedback becomes; None where that is not known.
    """

    span_context: SpanContext | None
    agent: str
    response_id: str | None
    conversation_id: str | None
    call_id: str | None = None


class RecentAnswers:
    """The newest evaluated answers by their ids. Any thread; the oldest go first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: OrderedDict[Any, RecentAnswer] = OrderedDict()

    def __repr__(self) -> str:
        return f"<RecentAnswers {len(self._answers)}>"

    def add(self, answer: RecentAnswer, reference_id: str | None) -> None:
        """Keep an answer.

        A trace and a conversation lead to their newest one. `reference_id` is its own id,
        if the application may know it.
        """
        span = answer.span_context
        keys: list[Any] = [] if span is None else [(span.trace_id, span.span_id), span.trace_id]
        ids = (
            ("call", reference_id),
            ("response", answer.response_id),
            ("conversation", answer.conversation_id),
        )
        keys += [key for key in ids if key[1] is not None]
        with self._lock:
            for key in keys:
                self._answers[key] = answer
                self._answers.move_to_end(key)
            while len(self._answers) > _MAX_IDS:
                self._answers.popitem(last=False)

    def find(self, ids: Iterable[Any]) -> RecentAnswer | None:
        """Return the answer that the first known of these ids leads to."""
        with self._lock:
            return next(
                (answer for key in ids if (answer := self._answers.get(key)) is not None), None
            )

    def remove(self, conversation_ids: Collection[str]) -> None:
        """Forget the answers of these conversations."""
        with self._lock:
            for key in [
                key
                for key, answer in self._answers.items()
                if answer.conversation_id in conversation_ids
            ]:
                del self._answers[key]


class Seen:
    """Which feedback came already: a click that is sent twice counts once.

    Any thread; the oldest are forgotten.

    What is kept is a digest, since a key has comments in it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secret = os.urandom(16)
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def is_new(self, key: object) -> bool:
        digest = hashlib.blake2b(
            repr(key).encode("utf-8", "replace"), digest_size=16, key=self._secret
        ).digest()
        with self._lock:
            if digest in self._digests:
                return False
            self._digests[digest] = None
            if len(self._digests) > _MAX_SEEN:
                self._digests.popitem(last=False)
            return True
