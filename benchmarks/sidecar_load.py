"""Load for the sidecar: traces of five spans, shuffled over batches, and a receiver that checks the
scores.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import grpc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agenteval_otel.semconv import CONVERSATION_ID, EVALUATION_NAME, RESPONSE_ID, SCORE_LABEL
from benchmarks.evaluators import prose
from benchmarks.mappers import ANSWER, QUESTION, RESULT, gen_ai, request

__all__ = ["BATCH_TRACES", "Batch", "Receiver", "batches"]

_SPANS, _BATCH_SPANS = 5, 512
BATCH_TRACES = _BATCH_SPANS / _SPANS
_REFUSAL = "I'm sorry, but I can't help with that request."
_REFUSED_EVERY, _TEXTS = 3, 48  # a multiple
_SCOPE = "opentelemetry.instrumentation.genai.openai"
# What stands in for values in the encoded spans, each as long as its value.
_NUMBER, _TRACE, _START, _END = b"N" * 8, b"T" * 16, b"S" * 7, b"E" * 8
_BETWEEN = b"|between spans|"
_HEALTH = "response_health"


class Batch(NamedTuple):
    """A request, and the traces whose last span is in it."""

    body: bytes
    completes: list[int]


def batches() -> Iterator[Batch]:
    """Requests of 512 spans, without end. Traces are numbered: ids, content and the right score
    follow from it.

    The spans of 512 traces are shuffled over five requests.
    """
    chance, head, templates = random.Random(19), *_templates()
    first = 1  # a trace's id is not 0
    while True:
        spans: list[tuple[int, bytes]] = []
        for number in range(first, first + _BATCH_SPANS):
            spans += [(number, span) for span in _trace(templates[number % _TEXTS], number)]
        chance.shuffle(spans)
        last = {number: index // _BATCH_SPANS for index, (number, _) in enumerate(spans)}
        for index in range(_SPANS):
            records = b"".join(
                span for _, span in spans[index * _BATCH_SPANS : (index + 1) * _BATCH_SPANS]
            )
            body = _field(1, head[0] + _field(2, head[1] + records))
            yield Batch(body, [number for number, at in last.items() if at == index])
        first += _BATCH_SPANS


def _is_refused(number: int) -> bool:
    return number % _REFUSED_EVERY == 0


def _trace(template: bytes, number: int) -> list[bytes]:
    """The spans of a trace; half of its id is its number, the other half, which sampling looks at,
    spread evenly.
    """
    end_ns, spread = time.time_ns(), number * 0x9E3779B97F4A7C15 % (1 << 64)
    trace = template.replace(_NUMBER, b"%08x" % number).replace(
        _TRACE, number.to_bytes(8) + spread.to_bytes(8)
    )
    trace = trace.replace(_START, (end_ns - 1_000_000_000 >> 8).to_bytes(7, "little"))
    return trace.replace(_END, end_ns.to_bytes(8, "little")).split(_BETWEEN)


def _templates() -> tuple[tuple[bytes, bytes], list[bytes]]:
    """What stands before the spans; and the spans of several traces, of which the first refuses to
    answer.
    """
    chance, traces = random.Random(7), []
    words = prose(20_000).split()
    for index in range(_TEXTS):
        # Of different words, or they would compress as no conversations do.
        texts = {
            text: " ".join(chance.choices(words, k=len(text) // 7)) + "."
            for text in (QUESTION, RESULT, ANSWER)
        }
        if _is_refused(index):
            texts[ANSWER] = _REFUSAL
        attributes = gen_ai(*texts.values())
        attributes[0][CONVERSATION_ID], attributes[2][RESPONSE_ID] = _ids(_NUMBER.decode())
        [group] = ExportTraceServiceRequest.FromString(request(_SCOPE, attributes)).resource_spans
        [scope] = group.scope_spans
        for index, span in enumerate(scope.spans):
            span.trace_id = _TRACE
            span.start_time_unix_nano = int.from_bytes(bytes([index]) + _START, "little")
            span.end_time_unix_nano = int.from_bytes(_END, "little")
        traces.append(_BETWEEN.join(_field(2, span.SerializeToString()) for span in scope.spans))
        head = (
            _field(1, group.resource.SerializeToString()),
            _field(1, scope.scope.SerializeToString()),
        )
    return head, traces


def _ids(number: str) -> tuple[str, str]:
    """The ids of the conversation, which the agent's span has, and of the response, which the last
    model call's has.
    """
    return f"{number}-6f0c-4c86-9a3d-2f1f6c9a7e55", f"chatcmpl-{number}fGhIjKlMnOpQrStUvWxYz"


def _field(number: int, payload: bytes) -> bytes:
    """A field of a protobuf message that holds a message."""
    length, size = len(payload), bytearray()
    while length > 0x7F:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    size.append(length)
    return bytes([number << 3 | 2]) + bytes(size) + payload


class Receiver:
    """Takes OTLP over gRPC, and checks the evaluation events: each in the trace of the answer that
    it is about.

    Attributes:
        scores: How many scores of each trace came, by its number.
        wrong: Events that are not right, by what is wrong.
        arrived_s: Monotonic seconds when the last score of a trace came, by its number.
    """

    def __init__(self, criteria: int, *, answers: bool = True) -> None:
        self.scores: dict[int, int] = {}
        self.wrong: Counter[str] = Counter()
        self.arrived_s: dict[int, float] = {}
        self.complete = 0
        self._criteria, self._answers = criteria, answers
        self._seen: set[tuple[int, str]] = set()
        self._server = grpc.server(ThreadPoolExecutor(2))
        handlers = [
            _handler(self._other, "trace"),
            _handler(self._logs, "logs"),
            _handler(self._other, "metrics"),
        ]
        self._server.add_generic_rpc_handlers(handlers)
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def close(self) -> None:
        self._server.stop(0)

    def _other(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        if not self._answers:
            context.abort(grpc.StatusCode.UNAVAILABLE, "away")
        return b""

    def _logs(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        self._other(body, context)
        now_s = time.monotonic()
        for group in ExportLogsServiceRequest.FromString(body).resource_logs:
            for scope in group.scope_logs:
                for record in scope.log_records:
                    self._take(int.from_bytes(record.trace_id[:8]), record.attributes, now_s)
        return b""

    def _take(self, number: int, attributes: Any, now_s: float) -> None:
        facts = {pair.key: pair.value.string_value for pair in attributes}
        criterion = facts.get(EVALUATION_NAME, "")
        if (facts.get(CONVERSATION_ID), facts.get(RESPONSE_ID)) != _ids(f"{number:08x}"):
            self.wrong["of another trace, or of a part of it"] += 1
        if criterion == _HEALTH and facts.get(SCORE_LABEL) != (
            "fail" if _is_refused(number) else "pass"
        ):
            self.wrong["score"] += 1
        if (number, criterion) in self._seen:
            self.wrong["twice"] += 1
            return
        self._seen.add((number, criterion))
        count = self.scores[number] = self.scores.get(number, 0) + 1
        if count == self._criteria:
            self.arrived_s[number] = now_s
            self.complete += 1


def _handler(take: Any, package: str) -> grpc.GenericRpcHandler:
    name = f"opentelemetry.proto.collector.{package}.v1.{package.capitalize()}Service"
    return grpc.method_handlers_generic_handler(
        name, {"Export": grpc.unary_unary_rpc_method_handler(take)}
    )
