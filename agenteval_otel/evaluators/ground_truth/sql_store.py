"""A store that asks a database. SQLAlchemy is loaded with the first store."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Self

from pydantic import Field, model_validator
from pydantic_core import from_json, to_json

from agenteval_otel.components.database.target import Target, target_of
from agenteval_otel.errors import GroundTruthError
from agenteval_otel.evaluators.ground_truth.base import GroundTruth, GroundTruthStore
from agenteval_otel.models import EvaluationInput
from agenteval_otel.models.inputs import is_blank
from agenteval_otel.runtime.fork import reset_in_child
from agenteval_otel.runtime.worker import Worker, settle

PARAMETERS: Final = ("prompt", "module", "agent", "conversation_id", "session_id", "response_id")
_PARAMETER: Final = re.compile(r"(?<![:\w\\]):([A-Za-z_]\w*)(?!:)")
_NAME: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")
_COLUMNS: Final = ("prompt", "answer", "category", "module")
_MAX_CACHED_BYTES: Final = 16_384  # of an answer; a longer one is asked for again
_MAX_WAITING: Final = 256
_AWAY: Final = ("unreachable", "timeout")
_PAUSE_S: Final = 5.0
_IDLE_S: Final = 30.0
_OWN_SHARE: Final = 0.9  # of the time limit, to report a timeout's reason


class SqlGroundTruthStore(GroundTruthStore, type="sql"):
    """Finds reference answers in a database: SQLite or PostgreSQL.

    Set either a `query` of your own or a `table`. The query has the parameters ``:prompt``,
    ``:module`` (``metadata["module"]``, else the agent), ``:agent``, ``:conversation_id``,
    ``:session_id`` and ``:response_id``, which are always bound. With a `table` the row must have
    exactly this prompt, and this module or none. The first row counts. Its answer is the column
    ``answer``, else the first one. ``prompt``, ``category`` and ``module`` are taken if they are
    there. Read-only.

    Lookups run on the store's own threads, for at most `timeout_s`. If the database is unavailable,
    slow or lacks the table, there is no ground truth: counted as ``ground_truth:unreachable``,
    ``:timeout``, ``:query`` or ``:busy``. After the first two it is not queried for five seconds.
    Needs the extra ``sql``, for PostgreSQL ``postgresql``.

    Attributes:
        path: An SQLite file. Either this or `url`.
        url: ``postgresql://user:password@host/database`` or ``sqlite:///file``.
        query: A SELECT.
        table: A table. ``schema.table`` works too.
        columns: Names of its columns by content (``prompt``, ``answer``, ``category``, ``module``),
            if they differ from these. ``category`` and ``module`` are left out unless they are
            named.
        cache_size: Number of lookups that are cached, including those without a row. 0 caches none.
        cache_s: How long a lookup is cached, in seconds.
        connections: Maximum number of lookups at the same time.
    """

    path: Path | None = None
    url: str | None = None
    query: str | None = None
    table: str | None = None
    columns: dict[str, str] = Field(default_factory=dict)
    cache_size: int = Field(default=1_024, ge=0, le=10_000)
    cache_s: float = Field(default=60.0, ge=0, le=86_400)
    connections: int = Field(default=4, ge=1, le=16)

    @model_validator(mode="after")
    def _can_be_asked(self) -> Self:
        target_of(self.path, self.url)
        if (self.query is None) == (self.table is None):
            raise ValueError("expected either 'query', a SELECT, or 'table', the name of a table")
        if self.columns and self.table is None:
            raise ValueError(
                "columns are those of a table. A query names its own: SELECT expected AS answer"
            )
        unknown = sorted(set(self.columns) - set(_COLUMNS))
        if unknown:
            raise ValueError(f"found {unknown[0]!r}. Known: {', '.join(_COLUMNS)}")
        for name in (self.table, *self.columns.values()):
            if name and not _NAME.fullmatch(name):
                raise ValueError(f"found {name!r}, expected the name of a table or column")
        strange = sorted(set(self._parameters) - set(PARAMETERS))
        if strange:
            raise ValueError(
                f"unknown parameter :{strange[0]} in query. Known: :{', :'.join(PARAMETERS)}"
            )
        _ = self._lookups  # loads what asking needs: that takes longer than a lookup may
        return self

    async def find(self, evaluation_input: EvaluationInput) -> GroundTruth | None:
        """Return the answer to the input's prompt, remembered or asked for, or None.

        Raises `GroundTruthError`.
        """
        if "prompt" in self._parameters and not (evaluation_input.prompt or "").strip():
            return None
        parameters = {name: getattr(evaluation_input, name) for name in self._parameters}
        return await self._lookups.find(parameters)

    @cached_property
    def _statement(self) -> str:
        if self.query is not None:
            return self.query
        names = {"prompt": "prompt", "answer": "answer"} | self.columns
        shown = ", ".join(f"{column} AS {name}" for name, column in names.items())
        statement = f"SELECT {shown} FROM {self.table} WHERE {names['prompt']} = :prompt"
        module = names.get("module")
        if module is None:
            return f"{statement} LIMIT 1"
        own_first = f"CASE WHEN {module} = :module THEN 0 ELSE 1 END"
        return (
            f"{statement} AND ({module} = :module OR {module} IS NULL) ORDER BY {own_first} LIMIT 1"
        )

    @cached_property
    def _parameters(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(_PARAMETER.findall(self._statement)))

    @cached_property
    def _lookups(self) -> CachedLookups:
        return CachedLookups(
            target_of(self.path, self.url),
            self._statement,
            timeout_s=self.timeout_s * _OWN_SHARE,
            connections=self.connections,
            cache_size=self.cache_size,
            cache_s=self.cache_s,
        )


class CachedLookups:
    """Asks the database on threads of its own, and remembers the answers.

    Any event loop may use it. Nothing in it blocks.
    """

    def __init__(
        self,
        target: Target,
        statement: str,
        *,
        timeout_s: float,
        connections: int,
        cache_size: int,
        cache_s: float,
    ) -> None:
        self._target = target
        self._timeout_s = timeout_s
        self._cache_size = cache_size
        self._cache_s = cache_s
        self._worker = Worker(
            "agenteval-ground-truth-sql",
            max_waiting=_MAX_WAITING,
            max_threads=connections,
            idle_s=_IDLE_S,
            on_idle=lambda: self._lookups.close(),
        )
        from agenteval_otel.components.database.lookups import (
            Lookups,  # loads SQLAlchemy and the driver
        )

        self._lookups = Lookups(target, statement, timeout_s=timeout_s, connections=connections)
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, tuple[float, GroundTruth | None]] = OrderedDict()
        self._away_until_s = 0.0

    async def find(self, parameters: Mapping[str, Any]) -> GroundTruth | None:
        """Return what the database has for these parameters, or None.

        Raises `GroundTruthError` with the reason.
        """
        key = sha256(to_json(parameters)).digest()
        now_s = time.monotonic()
        with self._lock:
            until_s, known = self._known.get(key, (0.0, None))
        if now_s < until_s:
            return known
        if now_s < self._away_until_s:
            raise GroundTruthError(
                f"{self._target.place}: not asked, it was away", reason="unreachable"
            )
        future: Future[GroundTruth | None] = Future()
        ask = partial(self._ask, parameters)
        if not self._worker.submit(partial(settle, future, ask)):
            raise GroundTruthError(f"{self._target.place}: too many lookups wait", reason="busy")
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await asyncio.wrap_future(future)
        except TimeoutError:
            self._away_until_s = time.monotonic() + _PAUSE_S
            raise GroundTruthError(
                f"{self._target.place}: no answer within {self._timeout_s:g} s", reason="timeout"
            ) from None
        self._remember(key, answer)
        return answer

    def _ask(self, parameters: Mapping[str, Any]) -> GroundTruth | None:
        """Ask the database, on a thread of the worker's."""
        try:
            row = self._lookups.first(parameters)
        except GroundTruthError as error:
            if error.reason in _AWAY:
                self._away_until_s = time.monotonic() + _PAUSE_S
            raise
        return None if row is None else _ground_truth_of(row)

    def _remember(self, key: bytes, answer: GroundTruth | None) -> None:
        if answer is not None and len(to_json(answer.answer)) > _MAX_CACHED_BYTES:
            return
        with self._lock:
            self._known[key] = (time.monotonic() + self._cache_s, answer)
            self._known.move_to_end(key)
            while len(self._known) > self._cache_size:
                self._known.popitem(last=False)


def _ground_truth_of(row: Mapping[str, Any]) -> GroundTruth | None:
    answer = row["answer"] if "answer" in row else next(iter(row.values()), None)
    if is_blank(answer):
        return None
    if not isinstance(answer, str):
        # a decimal, a moment, JSON of the database's own
        answer = from_json(to_json(answer, fallback=str))
    texts = {
        name: str(row[name])
        for name in ("prompt", "category", "module")
        if row.get(name) is not None
    }
    return GroundTruth(answer=answer, **texts)
