"""Exchanges: requests and responses of a captured route as monitored calls.

An exchange is one request and its response, or one message over a WebSocket and what is sent until
the next. ASGI and WSGI middleware feed them.

Nothing here raises into the application, holds back a piece of a body, or keeps more of it than the
limit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Token
from typing import Any, ClassVar, Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context, attach, detach

from agenteval_otel.capture import Facts
from agenteval_otel.capture.calls import STREAM_CHARS, CapturedCall
from agenteval_otel.capture.detached import Unreadable
from agenteval_otel.capture.events import SentMessage
from agenteval_otel.capture.formats.web import FORM, RequestBody, body_value
from agenteval_otel.capture.reference import Reference
from agenteval_otel.capture.text import clean
from agenteval_otel.config.process import default_pipeline
from agenteval_otel.config.settings import load_storage
from agenteval_otel.engine.agent_settings import AgentSettings
from agenteval_otel.engine.handler import HandlerSettings, StorageLike
from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.engine.task import HandlerCall
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators.func import EvaluatorLike
from agenteval_otel.instrumentation.handler import Handler
from agenteval_otel.instrumentation.wrappers import check_agent, check_function, written_in_code
from agenteval_otel.models import StreamEnd
from agenteval_otel.runtime.log import log
from agenteval_otel.runtime.memory import kept_bytes, most_parsed_bytes
from agenteval_otel.sampling import Sampler
from agenteval_otel.semconv import CaptureReason

Routes = Sequence[str] | Mapping[str, str]
_ROUTE: Final = re.compile(r"(?:([A-Z]+) )?(/\S*)")
_PART: Final = re.compile(r"\{\w+\}|\*$")
_NEVER: Final = ("HEAD", "OPTIONS")
SOCKET: Final = "WS"
"""Stands in the place of a route's method: each text message received over a WebSocket is a call."""
_TEXTS: Final = re.compile(
    r"text/|application/([\w.-]+\+)?(json|xml)|application/(x-ndjson|jsonl|json-seq)|" + FORM
)
_JSON: Final = re.compile(r"application/(?:[\w.-]+\+)?json")
_EVENTS: Final = "text/event-stream"
_OK: Final = 200
_MESSAGE_BYTES: Final = 64  # about what a kept message takes beside its text
_ERROR: Final = 500
_HEADER: Final = re.compile(r"[A-Za-z0-9-]{1,64}")


class Middleware:
    """Holds what the middleware for ASGI and WSGI share: the captured routes and their handlers."""

    has_sockets: ClassVar[bool] = False

    def __init__(
        self,
        app: Any,
        *,
        routes: Routes,
        agent: str | None = None,
        prompt: Callable[[Any], object] | None = None,
        response: Callable[[Any], object] | None = None,
        capture: Callable[[dict[str, Any], Any], Facts | Mapping[str, Any]] | None = None,
        max_body_bytes: int = STREAM_CHARS,
        reference_header: str | None = None,
        evaluators: Sequence[EvaluatorLike] | None = None,
        sample_rate: float | None = None,
        sampler: Sampler | str | Mapping[str, Any] | None = None,
        escalation: object = None,
        storage: StorageLike | Sequence[StorageLike] | None = None,
        pipeline: Pipeline | None = None,
    ) -> None:
        """Monitor the requests of some routes of an application.

        Args:
            app: The application.
            routes: Paths such as ``/chat``, ``/agents/{name}/ask``, ``/v1/*``, each with a method
                before it if only that one is meant (``POST /chat``). Without one, every method but
                HEAD and OPTIONS is meant. Or a mapping from such paths to the names of agents. The
                first that matches counts. ``WS /chat`` (ASGI) is a route of WebSockets: each text
                message received is a prompt, and the messages sent until the next one are its
                answer.
            agent: Name of the agent in telemetry. By default the route's path.
            prompt: Picks the prompt from the request's body: JSON or a form read, else text. By
                default the usual fields, without a body those of the query.
            response: Picks the answer from the response's body: JSON read, a list of what
                server-sent events carry, else text. By default the usual fields, and the text of a
                stream.
            capture: ``capture(request, body)`` returns further facts (see `annotate`) as a mapping.
                The request has ``method``, ``path``, ``query``, ``headers`` (lower case) and
                ``body``. The three functions run on the background thread.
            max_body_bytes: How much of each body is kept. What is longer is marked as truncated.
            reference_header: Adds this header to the responses of captured routes, sampled or not,
                with what `evaluation_reference` gives: the page sends it back with its feedback.
            evaluators: As of `monitor`, like all that follows.

        Raises:
            ConfigurationError: With the path of the wrong argument.
        """
        self.app = app
        check_agent(agent)
        for path, function in (("prompt", prompt), ("response", response), ("capture", capture)):
            check_function(function, path)
        if type(max_body_bytes) is not int or max_body_bytes < 1:
            raise ConfigurationError(
                f"expected a number of bytes, found {max_body_bytes!r}", path="max_body_bytes"
            )
        written = written_in_code(evaluators, sample_rate, sampler, escalation)
        providers = None if storage is None else load_storage(storage)
        if reference_header is not None and not _HEADER.fullmatch(str(reference_header)):
            wrong = f"expected the name of a header such as x-evaluation-reference, found {reference_header!r}"
            raise ConfigurationError(wrong, path="reference_header")
        self.reference_header = reference_header
        self._limit = max_body_bytes
        self._read = _reader(prompt, response, capture)
        self._routes: list[_Route] = []
        self._sockets: list[_Route] = []
        for method, pattern, name in _parsed(routes, agent):
            if method == SOCKET and not self.has_sockets:
                wrong = (
                    "a route of WebSockets, which WSGI does not have: use the middleware for ASGI"
                )
                raise ConfigurationError(f"{SOCKET} {name}: {wrong}", path="routes")
            route = _Route(method, pattern, self._handler(name, written, providers, pipeline))
            kept = self._sockets if method == SOCKET else self._routes
            kept.append(route)

    def __repr__(self) -> str:
        agents = (route.handler.agent for route in (*self._routes, *self._sockets))
        return f"<{type(self).__name__} {', '.join(agents)}>"

    def _handler(
        self,
        name: str,
        written: AgentSettings,
        storage: Sequence[Any] | None,
        pipeline: Pipeline | None,
    ) -> Handler:
        def settings_for(used: Pipeline) -> HandlerSettings:
            return used.handler(
                name, written, storage=storage, capture=self._read, function=_request
            )

        handler = Handler(
            name,
            _request,
            settings_for,
            pipeline or default_pipeline(),
            follows=pipeline is None,
            keep_arguments=self._read is not None,
        )
        handler.of_requests = True
        return handler

    def begin(
        self, method: str, path: str, query: str, headers: Iterable[tuple[str, str]]
    ) -> tuple[Exchange | None, str | None]:
        """Return the exchange of a request, and the reference for its response's header.

        The exchange is None if the route is not captured or the call is not monitored. The
        reference is None if none is wanted.
        """
        for route in self._routes:
            if route.takes(method) and route.pattern.fullmatch(path):
                route.has_requests = True
                handler = route.handler
                try:
                    names = dict(headers)
                    context = _remote_context(names)
                    request = {"method": method, "path": path, "query": query, "headers": names}
                    token = None if context is None else attach(context)
                    try:
                        call = handler.enter((), {})
                    finally:
                        if token is not None:
                            detach(token)
                    reference = None
                    if self.reference_header:
                        reference = self._reference(handler.agent, call, context)
                    if call is None:
                        return None, reference
                    exchange = Exchange(
                        handler, call, self._limit, request, context, reads=self._read is not None
                    )
                    return exchange, reference
                except Exception as error:
                    handler.broken("capture", error)  # and the call is counted
                return None, None
        return None, None

    def socket(
        self, path: str, query: str, headers: Iterable[tuple[str, str]]
    ) -> SocketMessages | None:
        """Return what follows the messages of a WebSocket, or None if its route is not captured."""
        for route in self._sockets:
            if route.pattern.fullmatch(path):
                request = {"method": SOCKET, "path": path, "query": query, "headers": dict(headers)}
                reads = self._read is not None
                return SocketMessages(route.handler, self._limit, request, reads=reads)
        for route in self._routes:
            if route.pattern.fullmatch(path):
                route.note_socket()
                break
        return None

    def _reference(self, agent: str, call: HandlerCall | None, context: Context | None) -> str:
        span_context = None if call is None else call.span_context
        if span_context is None:
            current_span = trace.get_current_span(context)
            current = current_span.get_span_context()
            span_context = current if current.is_valid else None
        return str(Reference.to(call, span_context, agent))


def note_unreadable(error: Exception) -> None:
    """Count a connection that cannot be read: it is passed on, and nothing of it is captured."""
    default_pipeline().broken("capture", error)


class _Route:
    """Holds what a captured route matches, its handler, and which kinds of connection came."""

    def __init__(self, method: str | None, pattern: re.Pattern[str], handler: Handler) -> None:
        self.method = method
        self.pattern = pattern
        self.handler = handler
        self.has_requests = False
        self._has_noted = False

    def takes(self, method: str) -> bool:
        """Tell whether requests of this method are captured."""
        if self.method:
            return method == self.method
        return method not in _NEVER

    def note_socket(self) -> None:
        """Log once that a WebSocket came to a route to which no request has come."""
        if self.has_requests or self._has_noted:
            return
        self._has_noted = True
        log.warning(
            "websocket_not_captured",
            part=self.handler.agent,
            why="the route captures requests, and a WebSocket came: nothing of it is evaluated",
            fix=f'to evaluate each message, put "{SOCKET} " before the path in routes',
        )


class Exchange:
    """Follows one request and its response.

    The call ends with the body, or with what ended it before.
    """

    def __init__(
        self,
        handler: Handler,
        call: HandlerCall,
        limit: int,
        request: dict[str, Any],
        context: Context | None,
        *,
        reads: bool,
    ) -> None:
        self._handler = handler
        self._call = call
        self._reads = reads  # functions of the user read the bodies
        self.wanted = call.is_kept
        """Whether the bodies are kept. False for calls that `Handler._begin_unsampled` began."""
        self.ended = False
        self._token: Token[CapturedCall | None] | None = None
        self._context = None if call.span is None else context
        self._attached: Token[Context] | None = None
        self._request_facts = request  # method, path, query and headers
        self.request = _Body(limit)
        self.response = _Body(limit)
        self._status = 0
        self._pieces = 0
        if self.wanted:
            self.request.set_headers(request["headers"])

    def begin_response(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Take the status and the headers of the response.

        A later response replaces an earlier one.
        """
        try:
            self._status = status
            self.response.set_headers(dict(headers))
        except Exception as error:
            self._handler.note_unread(error)

    def add(self, piece: object) -> None:
        """Keep a piece of the response's body, which has passed already."""
        self._pieces += 1
        if self.wanted:
            self.response.add(piece)

    def open(self) -> None:
        """Make the call the current one, for code that follows on this stack."""
        if not self.ended:
            if self._context is not None:
                self._attached = attach(self._context)
            self._handler.scope.open(self._call)

    def close(self) -> None:
        """Undo `open`, in the context in which it was opened."""
        if self.ended:
            self._call.token = self._token
            self._token = None
        self._handler.scope.close(self._call)
        if self._attached is not None:
            attached = self._attached
            self._attached = None
            detach(attached)

    def end(
        self, end: StreamEnd = "completed", error: BaseException | None = None, *, unread: str = ""
    ) -> None:
        """End the call.

        Later calls of `end` do nothing. `unread` is the reason why the body cannot be read.
        """
        if self.ended:
            return
        call = self._call
        handler = self._handler
        self.ended = True
        # The scope may have been opened in another task, which closes it.
        self._token = call.token
        call.token = None
        if call.has_inner:
            handler.pass_by(call)
            return
        try:
            if self.wanted:
                self._keep_prompt(call)
                self._keep_answer(call, end, error, unread)
        except Exception as failure:
            self._handler.note_unread(failure)
        handler.leave(call, None, error)

    def _keep_prompt(self, call: HandlerCall) -> None:
        request = self.request
        query = self._request_facts["query"]
        body = bytes(request.kept)
        was_unread = bool(request.unread) and request.was_sent
        call.left_out += int(request.truncated or was_unread)
        call.prompt = RequestBody(body, query, request.kind)
        call.size_bytes += most_parsed_bytes(body) + kept_bytes(query)
        if self._reads:
            request_facts = {**self._request_facts, "body": call.prompt}
            call.arguments = (request_facts,), {}  # of `_request`
            call.size_bytes += kept_bytes(self._request_facts["headers"])

    def _keep_answer(
        self, call: HandlerCall, end: StreamEnd, error: BaseException | None, unread: str
    ) -> None:
        response = self.response
        if error is None and self._status >= _ERROR:
            call.error_type = str(self._status)
        unread = unread or (response.unread if response.was_sent else "")
        has_failed = error is not None or bool(call.error_type)
        if has_failed and (end == "completed" or unread or not self._pieces):
            return  # an error page is no answer
        if unread:
            call.answer = Unreadable("the response", unread, "unreadable_body")
            return
        body = bytes(response.kept)
        is_stream = self._pieces > 1 and not response.has_length
        is_one_value = not is_stream or _JSON.match(response.kind) is not None
        if end == "completed" and is_one_value and response.kind != _EVENTS:
            call.truncated = response.truncated
            call.answer = {"status_code": self._status, "body": body}
            call.size_bytes += most_parsed_bytes(body)
        else:
            call.keep_stream([body], end, response.truncated)


class _SocketMessage(Exchange):
    """Follows a text message received over a WebSocket, and the messages sent until the next."""

    def __init__(
        self,
        handler: Handler,
        call: HandlerCall,
        limit: int,
        request: dict[str, Any],
        *,
        reads: bool,
    ) -> None:
        super().__init__(handler, call, limit, request, None, reads=reads)
        self._limit = limit
        self._sent: list[SentMessage] = []
        self._sent_bytes = 0
        self._is_cut = False
        self._last_tick = call.started_tick
        self.is_answered = False

    def ask(self, text: str) -> None:
        """Take the message, in place of an earlier one that was not answered."""
        self.request = _Body(self._limit)
        if self.wanted:
            self.request.add(text.encode("utf-8", "replace"))

    def add(self, piece: object) -> None:
        """Keep a message that was sent, while there is room."""
        self.is_answered = True
        self._last_tick = time.perf_counter_ns()
        if not self.wanted:
            return
        self._pieces += 1
        if not isinstance(piece, str) or self._is_cut:
            return
        room = self._limit - self._sent_bytes
        size_bytes = kept_bytes(piece) + _MESSAGE_BYTES
        self._is_cut = size_bytes > room
        text = piece
        if self._is_cut:
            text = piece[: max(0, room) // 4]  # a character may take four bytes
        if text:
            self._sent.append(SentMessage(text))
            self._sent_bytes += size_bytes

    def end(
        self, end: StreamEnd = "completed", error: BaseException | None = None, *, unread: str = ""
    ) -> None:
        """End the call at the time of the last message sent: until the next came, nothing ran."""
        if not self.ended and error is None:
            # The duration counts from `started_tick`. Moving that forward takes the idle time off.
            idle_ns = time.perf_counter_ns() - self._last_tick
            self._call.started_tick += idle_ns
        super().end(end, error, unread=unread)

    def _keep_answer(
        self, call: HandlerCall, end: StreamEnd, error: BaseException | None, unread: str
    ) -> None:
        if not self._sent and error is not None:
            return
        if not self._sent:
            problem = "only binary messages were sent" if self._pieces else "nothing was sent"
            reason: CaptureReason = "unreadable_body" if self._pieces else "no_answer"
            call.answer = Unreadable("the messages", problem, reason)
        elif end == "completed" and self._pieces == 1:
            body = self._sent[0].text.encode("utf-8", "replace")
            call.truncated = self._is_cut
            call.answer = {"status_code": _OK, "body": body}
            call.size_bytes += most_parsed_bytes(body)
        else:
            call.keep_stream(list(self._sent), end, self._is_cut)
            call.size_bytes += self._sent_bytes


class SocketMessages:
    """Follows the messages of one WebSocket, each as a call. Nothing here raises."""

    def __init__(
        self, handler: Handler, limit: int, request: dict[str, Any], *, reads: bool
    ) -> None:
        self._handler = handler
        self._limit = limit
        self._request = request
        self._reads = reads
        self._message: _SocketMessage | None = None
        self._is_gone = False

    def received(self, message: Any) -> None:
        """Take a message that the application receives."""
        try:
            kind = message["type"]
            if kind == "websocket.disconnect":
                self._is_gone = True
            if kind != "websocket.receive":
                return
            text = message.get("text")
            if isinstance(text, str) and text:
                self._ask(text)
        except Exception as error:
            self._handler.note_unread(error)

    def sent(self, message: Any) -> None:
        """Take a message that the application has sent."""
        try:
            if message["type"] == "websocket.send" and self._message is not None:
                piece = message.get("text")
                if piece is None:
                    piece = message.get("bytes")
                self._message.add(piece)
        except Exception as error:
            self._handler.note_unread(error)

    def failed(self) -> None:
        """Note that the client is gone: a message could not be sent to it."""
        self._is_gone = True
        self.end("abandoned")

    def end(self, end: StreamEnd = "completed", error: BaseException | None = None) -> None:
        """End the last message's call. An exception after the client has gone is no error."""
        message = self._message
        self._message = None
        if message is None:
            return
        if self._is_gone and error is not None:
            end = "completed"
            error = None
        try:
            message.end(end, error)
            message.close()
        except Exception as failure:
            self._handler.note_unread(failure)

    def _ask(self, text: str) -> None:
        if self._message is not None and not self._message.is_answered:
            self._message.ask(text)
            return
        self.end()
        call = self._handler.enter((), {})
        if call is None:
            return
        message = _SocketMessage(self._handler, call, self._limit, self._request, reads=self._reads)
        message.ask(text)
        message.open()
        self._message = message


class _Body:
    """Keeps as many bytes of a passing body as the limit allows, and what the headers say of it."""

    def __init__(self, limit: int) -> None:
        self.kept = bytearray()
        self._limit = limit
        self.truncated = False
        self.was_sent = False
        self.has_length = False
        self.kind = ""
        self.unread = ""

    def set_headers(self, headers: Mapping[str, str]) -> None:
        """Take the headers, with names in lower case."""
        self.kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        self.has_length = "content-length" in headers
        encoding = headers.get("content-encoding", "").strip().lower()
        self.unread = ""
        if encoding not in ("", "identity"):
            self.unread = f"its content-encoding is {clean(encoding, 32)}"
        elif self.kind and not _TEXTS.match(self.kind):
            self.unread = f"its content-type is {clean(self.kind, 64)}"

    def add(self, piece: Any) -> None:
        """Keep a piece, as far as there is room."""
        if not piece:
            return
        self.was_sent = True
        try:
            if not self.unread and not self.truncated:
                room = self._limit - len(self.kept)
                self.kept += piece[:room]
                self.truncated = len(piece) > room
        except Exception:
            self.unread = f"a piece of it is {type(piece).__name__}"  # the server will complain


def _remote_context(headers: dict[str, str]) -> Context | None:
    """Return the context that a request brings, if no span of this process is current.

    Return None if it brings none.
    """
    if trace.get_current_span() is not trace.INVALID_SPAN:
        return None
    context = propagate.extract(headers)
    return None if trace.get_current_span(context) is trace.INVALID_SPAN else context


def _request(request: dict[str, Any]) -> None:
    """Stand for the route's handler, whose only argument is the request."""


def _reader(
    prompt: Callable[[Any], Any] | None,
    response: Callable[[Any], Any] | None,
    capture: Callable[..., Any] | None,
) -> Callable[[dict[str, Any], Any], dict[str, Any]] | None:
    """Return the handler's ``capture=`` function, which reads the bodies for those of the user.

    Return None if there are none.
    """
    if prompt is None and response is None and capture is None:
        return None

    def read(arguments: dict[str, Any], answer: object) -> dict[str, Any]:
        request = dict(arguments["request"])
        request["body"] = request["body"].read()
        body: Any = None
        if isinstance(answer, list):
            body = body_value(b"".join(answer))
        elif isinstance(answer, dict):
            body = body_value(answer["body"])
        facts: dict[str, Any] = {}
        if prompt is not None:
            facts["prompt"] = prompt(request["body"])
        if response is not None and body is not None:
            facts["response"] = response(body)
        if capture is None:
            return facts
        return {**facts, **capture(request, body)}

    return read


def _parsed(routes: object, agent: str | None) -> list[tuple[str | None, re.Pattern[str], str]]:
    """Return method, pattern and agent of each route."""
    if isinstance(routes, str) or not isinstance(routes, Sequence | Mapping) or not routes:
        raise ConfigurationError(
            f"expected a list of paths such as ['/chat'], found {routes!r}", path="routes"
        )
    parsed = []
    for index, route in enumerate(routes):
        match = _ROUTE.fullmatch(route) if isinstance(route, str) else None
        if match is None:
            expected = "expected a path such as '/chat', 'POST /agents/{name}/ask' or '/v1/*'"
            raise ConfigurationError(f"{expected}, found {route!r}", path=f"routes[{index}]")
        name = routes[route] if isinstance(routes, Mapping) else agent
        check_agent(name)
        method, path = match.groups()
        pattern = re.compile(_pattern(path), re.DOTALL)
        parsed.append((method, pattern, clean(name or path, 256)))
    return parsed


def _pattern(path: str) -> str:
    """Return a path's regular expression.

    In it ``{name}`` is one segment, and ``*`` at the end is all that follows.
    """
    pattern = ""
    at = 0
    for part in _PART.finditer(path):
        pattern += re.escape(path[at : part.start()])
        pattern += ".*" if part[0] == "*" else "[^/]+"
        at = part.end()
    return pattern + re.escape(path[at:])
