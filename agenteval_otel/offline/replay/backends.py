"""Recorded answers from Jaeger and Tempo, by their HTTP query interfaces.

Neither supports paging: a search returns at most `LIMIT` traces of a window, and no cursor. A
window that reaches the limit is therefore searched again in halves, until each part returns fewer.
"""

from __future__ import annotations

import asyncio
import base64
import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from agenteval_otel.capture.otlp.body import OtlpMessages, request_of_json
from agenteval_otel.capture.spans.span import ReadSpan, spans_of_otlp
from agenteval_otel.components.http_client.client import (
    ResponseTooLong,
    client_for,
    load_clients,
    no_connection,
    problem_of,
    quietly,
)
from agenteval_otel.components.retry import wait_before
from agenteval_otel.errors import ConfigurationError, ModelError, StorageError
from agenteval_otel.offline.replay.recorded import AnswerFilter, RecordedAnswer, answers_of

LIMIT: Final = 200
"""How many traces a search asks for."""
_REPLY_BYTES: Final = 64 * 1024 * 1024
_TRIES: Final = 4
_RETRYABLE: Final = frozenset({429, 500, 502, 503, 504})
_MOST_LOST: Final = 3  # windows one after another
_AT_ONCE: Final = 8
Ids = set[int]


class Backend:
    """Reads the answers of the traces of a window of time, oldest first.

    A window without traces is named by `notes`.

    Args:
        url: Its address, with the path before ``/api``.
        headers: Sent with each request.
        timeout_s: Of a request. It is tried four times.
    """

    title: ClassVar[str]
    least_ns: ClassVar[int]
    """The shortest window that it can be asked for."""

    def __init__(
        self,
        url: str,
        selection: AnswerFilter,
        *,
        headers: Mapping[str, str] | None = None,
        nested_agents: bool = False,
        timeout_s: float = 60.0,
        say: Callable[[str], object] = lambda line: None,
    ) -> None:
        problem = problem_of(url)
        if problem is not None:
            raise ConfigurationError(problem, path=f"address of {self.title}")
        if selection.since_ns is None or selection.until_ns is None:
            raise ConfigurationError(
                "is searched by time: set --since", path=f"--from {self.title.lower()}"
            )
        self.counts: Counter[str] = Counter()
        self._selection = selection
        self._nested = nested_agents
        self._say = say
        self._since_ns = selection.since_ns
        self._until_ns = selection.until_ns
        self._timeout_s = timeout_s
        self._headers = dict(headers or {})
        self._url = url.rstrip("/") + "/"
        self._messages = OtlpMessages("trace")
        self._seen: Ids = set()
        self._oldest_ns: int | None = None
        self._at_ns = self._since_ns
        self._lost = 0
        self._client: Any = None
        load_clients(("httpx2",))
        self._runner = asyncio.Runner()

    def close(self) -> None:
        if self._client is not None:
            self._runner.run(self._client.aclose())
        self._runner.close()

    def progress(self) -> str:
        return f"at {_shown(self._at_ns)}"

    def share(self) -> float:
        window_ns = self._until_ns - self._since_ns
        return (self._at_ns - self._since_ns) / max(1, window_ns)

    def notes(self) -> Iterator[str]:
        """Yield what is to be said of the window as a whole, once the answers were read."""
        window = f"{_shown(self._since_ns)} to {_shown(self._until_ns)}"
        window_ns = self._until_ns - self._since_ns
        if self._oldest_ns is None:
            yield f"{self.title} has no traces from {window}: is that within its retention, and the service right?"
        elif self._oldest_ns - self._since_ns > window_ns / 10:
            oldest = _shown(self._oldest_ns)
            yield f"{self.title}'s oldest trace of {window} is from {oldest}: is its retention shorter?"

    def answers(self) -> Iterator[RecordedAnswer]:
        for spans in self._traces():
            yield from answers_of(spans, self.counts, nested_agents=self._nested)

    @abstractmethod
    def _traces(self) -> Iterator[list[ReadSpan]]:
        """Yield the traces of the selection, each once."""

    @abstractmethod
    def _search(self, query: str, since_ns: int, until_ns: int) -> Any:
        """Return what a search finds, by trace id: its traces or only their ids.

        May raise `StorageError`.
        """

    def _window(
        self, query: str, since_ns: int, until_ns: int, wanted: frozenset[int] = frozenset()
    ) -> Generator[dict[int, Any], None, Ids]:
        """Yield the traces of a window that were not seen before.

        Return those of `wanted` that the window has at all, or all of `wanted` if it cannot
        be read completely.
        """
        self._at_ns = since_ns
        can_split = until_ns - since_ns > self.least_ns
        try:
            traces = self._search(query, since_ns, until_ns)
            self._lost = 0
        except StorageError as error:
            if can_split and isinstance(error, TooLarge):
                return (yield from self._halves(query, since_ns, until_ns, wanted))
            self.counts["windows that could not be read"] += 1
            self._say(f"{_shown(since_ns)} to {_shown(until_ns)}: {error}")
            self._lost += 1
            if self._lost == _MOST_LOST:
                raise StorageError(f"{error}. Start the same command again to go on") from None
            return set(wanted)
        new = {trace_id: trace for trace_id, trace in traces.items() if trace_id not in self._seen}
        self._seen |= new.keys()
        if new:
            yield new
        if len(traces) < LIMIT:
            return {trace_id for trace_id in traces if trace_id in wanted}
        if not can_split:
            self.counts["moments with more traces than it returns at once"] += 1
            return set(wanted)
        known = frozenset(traces)
        del traces, new  # while the parts are read, the spans of the whole would stay in memory
        within = yield from self._halves(query, since_ns, until_ns, wanted | known)
        missing = known - within
        if missing:
            reason = f"traces that {self.title} left out of a part of the window"
            self.counts[reason] += len(missing)
        return within & wanted

    def _halves(
        self, query: str, since_ns: int, until_ns: int, wanted: frozenset[int]
    ) -> Generator[dict[int, Any], None, Ids]:
        middle = since_ns + (until_ns - since_ns) // 2 // self.least_ns * self.least_ns
        middle = min(max(middle, since_ns + self.least_ns), until_ns)
        earlier = yield from self._window(query, since_ns, middle, wanted)
        later = yield from self._window(query, middle, until_ns, wanted)
        return earlier | later

    def _read(self, trace: list[ReadSpan]) -> list[ReadSpan]:
        began_ns = min((span.start_ns for span in trace), default=self._until_ns)
        if self._oldest_ns is None or began_ns < self._oldest_ns:
            self._oldest_ns = began_ns
        return trace

    def _get(self, path: str, parameters: Mapping[str, str]) -> tuple[int, Any]:
        """Return status and JSON value of a response, which is 200 or 404.

        Raises `StorageError` for all others.
        """
        return self._runner.run(self._requested(path, parameters))

    async def _requested(self, path: str, parameters: Mapping[str, str]) -> tuple[int, Any]:
        if self._client is None:
            self._client = client_for(self._url, max_bytes=_REPLY_BYTES)
            self._client.headers.update({"accept": "application/json", **self._headers})
        for attempt in range(_TRIES):
            problem = ""
            try:
                with quietly():
                    async with asyncio.timeout(self._timeout_s):
                        response = await self._client.get(path, params=parameters)
                if response.status_code not in _RETRYABLE:
                    return self._value_of(response.status_code, response.content)
                problem = f"answered with status {response.status_code}"
            except TimeoutError:
                problem = f"no answer within {self._timeout_s:g} s"
            except ModelError as error:
                kind = TooLarge if isinstance(error, ResponseTooLong) else StorageError
                raise kind(f"{self.title}: {error}") from None
            except StorageError:
                raise
            except Exception as error:
                problem = f"{no_connection(error)}"
            if attempt + 1 < _TRIES:
                await asyncio.sleep(wait_before(attempt, 0.5))
        raise StorageError(f"{self.title}: {problem}")

    def _value_of(self, status: int, body: bytes) -> tuple[int, Any]:
        if status not in (200, 404):
            raise StorageError(f"{self.title}: answered with status {status}")
        try:
            return status, json.loads(body)
        except (ValueError, RecursionError):
            if status == 404:
                return status, None
            raise StorageError(f"{self.title}: the response is no JSON") from None

    def _spans(self, value: object) -> Iterator[ReadSpan]:
        """Yield the spans of OTLP in JSON. Raises `StorageError` for anything else."""
        try:
            request = request_of_json(value, self._messages)
            yield from spans_of_otlp(request.resource_spans)
        except Exception as error:
            raise StorageError(
                f"{self.title}: the response is no OTLP ({type(error).__name__})"
            ) from None


class TooLarge(StorageError):
    """Reports a response beyond the limit. A shorter window has a smaller response."""


class Jaeger(Backend):
    """Reads from Jaeger's ``/api/v3``, which answers in OTLP."""

    title = "Jaeger"
    least_ns = 1_000

    def _traces(self) -> Iterator[list[ReadSpan]]:
        for service in sorted(self._selection.services) or self._services():
            for traces in self._window(service, self._since_ns, self._until_ns):
                yield from map(self._read, traces.values())

    def _services(self) -> list[str]:
        status, value = self._get("api/v3/services", {})
        names = value.get("services") if isinstance(value, dict) else None
        if status != 200 or not isinstance(names, list):
            raise StorageError(
                "Jaeger: no /api/v3/services at this address: is it Jaeger's query port (16686)?"
            )
        return sorted(map(str, names))

    def _search(self, query: str, since_ns: int, until_ns: int) -> dict[int, list[ReadSpan]]:
        parameters = {
            "query.service_name": query,
            "query.start_time_min": _rfc3339(since_ns),
            "query.start_time_max": _rfc3339(until_ns - 1),
            "query.num_traces": str(LIMIT),
            "query.search_depth": str(LIMIT),  # the name since version 2
        }
        status, value = self._get("api/v3/traces", parameters)
        traces: dict[int, list[ReadSpan]] = {}
        if status == 404:
            if not isinstance(value, dict):  # else: no traces
                raise StorageError(
                    "Jaeger: no /api/v3/traces at this address: is it Jaeger's query port (16686)?"
                )
            return traces
        result = value.get("result") if isinstance(value, dict) else None
        if not isinstance(result, dict):
            raise StorageError("Jaeger: the response has no result")
        for span in self._spans(result):
            traces.setdefault(span.trace_id, []).append(span)
        return traces


class Tempo(Backend):
    """Reads from Tempo's ``/api/search``, and from ``/api/v2/traces`` for each trace."""

    title = "Tempo"
    least_ns = 1_000_000_000

    def _traces(self) -> Iterator[list[ReadSpan]]:
        services = sorted(self._selection.services)
        conditions = [f"resource.service.name = {json.dumps(name)}" for name in services]
        chosen = " || ".join(conditions)
        since_ns = self._since_ns // self.least_ns * self.least_ns
        until_ns = -(-self._until_ns // self.least_ns) * self.least_ns
        for traces in self._window(f"{{ {chosen} }}", since_ns, until_ns):
            fetched = self._runner.run(self._fetched(list(traces)))
            yield from map(self._read, fetched)
            del fetched  # else it stays in memory while the next window is searched and fetched

    def _search(self, query: str, since_ns: int, until_ns: int) -> dict[int, None]:
        parameters = {
            "q": query,
            "start": str(since_ns // self.least_ns),
            "end": str(until_ns // self.least_ns),
            "limit": str(LIMIT),
            "spss": "1",
        }
        status, value = self._get("api/search", parameters)
        traces = None
        if isinstance(value, dict):
            traces = value.get("traces") or []
        if status != 200 or not isinstance(traces, list):
            raise StorageError(
                "Tempo: no /api/search at this address: is it Tempo's query port (3200)?"
            )
        try:
            # zeros in front are left out there
            return {int(trace["traceID"], 16): None for trace in traces}
        except (TypeError, KeyError, ValueError):
            raise StorageError("Tempo: a trace without an id in the response") from None

    async def _fetched(self, trace_ids: list[int]) -> list[list[ReadSpan]]:
        free = asyncio.Semaphore(_AT_ONCE)

        async def fetch(trace_id: int) -> list[ReadSpan]:
            try:
                async with free:
                    status, value = await self._requested(f"api/v2/traces/{trace_id:032x}", {})
                if status == 404 or not isinstance(value, dict):
                    self.counts["traces that are gone"] += 1
                    return []
                if value.get("status") == "PARTIAL":
                    self.counts["traces that Tempo returned in part"] += 1
                trace = value.get("trace") or {}
                resource_spans = trace.get("resourceSpans") or trace.get("batches") or []
                request = _with_hex_ids({"resourceSpans": resource_spans})
                return list(self._spans(request))
            except StorageError as error:
                self.counts["traces that could not be read"] += 1
                self._say(f"trace {trace_id:032x}: {error}")
                return []

        fetched = await asyncio.gather(*map(fetch, trace_ids))
        return [trace for trace in fetched if trace]


def _with_hex_ids(value: Any) -> Any:
    """Convert ids to hexadecimal, which is OTLP's form.

    Tempo writes them in base64, as protobuf's own JSON form has bytes.
    """
    for resource in value["resourceSpans"]:
        for scope in resource.get("scopeSpans") or ():
            for span in scope.get("spans") or ():
                _convert_ids(span)
                for link in span.get("links") or ():
                    _convert_ids(link)
    return value


def _convert_ids(span_or_link: dict[str, Any]) -> None:
    for name, digits in (("traceId", 32), ("spanId", 16), ("parentSpanId", 16)):
        id = span_or_link.get(name)
        if id and len(id) != digits:
            span_or_link[name] = base64.b64decode(id).hex()


def _rfc3339(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def _shown(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S}Z"
