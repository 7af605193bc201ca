"""The answer that a piece of feedback is about.

It is found by its reference, its trace and span, or an id that the answer has.
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
    """Holds an evaluated answer, as far as feedback needs it.

    Attributes:
        call_id: Its own id, for the results that feedback becomes. None where that is not known.
    """

    span_context: SpanContext | None
    agent: str
    response_id: str | None
    conversation_id: str | None
    call_id: str | None = None


class RecentAnswers:
    """Holds the newest evaluated answers by their ids.

    Any thread may use it. The oldest answers are dropped first.
    """

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
        for key in ids:
            if key[1] is not None:
                keys.append(key)
        with self._lock:
            for key in keys:
                self._answers[key] = answer
                self._answers.move_to_end(key)
            while len(self._answers) > _MAX_IDS:
                self._answers.popitem(last=False)

    def find(self, ids: Iterable[Any]) -> RecentAnswer | None:
        """Return the answer that the first known of these ids leads to."""
        with self._lock:
            for key in ids:
                answer = self._answers.get(key)
                if answer is not None:
                    return answer
            return None

    def remove(self, conversation_ids: Collection[str]) -> None:
        """Forget the answers of these conversations."""
        with self._lock:
            matching = [
                key
                for key, answer in self._answers.items()
                if answer.conversation_id in conversation_ids
            ]
            for key in matching:
                del self._answers[key]


class Seen:
    """Tells which feedback came already, so that a click that is sent twice counts once.

    Any thread may use it. The oldest feedback is forgotten. Only a digest is kept, since a key
    contains comments.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secret = os.urandom(16)
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def is_new(self, key: object) -> bool:
        text = repr(key).encode("utf-8", "replace")
        digest = hashlib.blake2b(text, digest_size=16, key=self._secret).digest()
        with self._lock:
            if digest in self._digests:
                return False
            self._digests[digest] = None
            if len(self._digests) > _MAX_SEEN:
                self._digests.popitem(last=False)
            return True
