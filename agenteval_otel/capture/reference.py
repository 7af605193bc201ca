"""References: what an application passes on, so that later feedback finds the call."""

from __future__ import annotations

import base64
import struct
from typing import Final, NamedTuple

from opentelemetry.trace import SpanContext, TraceFlags

from agenteval_otel.capture.calls import CapturedCall, new_call_id
from agenteval_otel.capture.text import clean

# version, ids of call, trace and span, flags; the agent's name follows
_FIXED: Final = struct.Struct(">B8s16s8sB")
# comes first, so that no reference begins with "-" and reads as an option on a command line
_VERSION: Final = 1
_MAX_AGENT: Final = 200
_MAX_CHARS: Final = 1_200  # with a name of characters of four bytes


class Reference(NamedTuple):
    """A call, as it can be written down.

    Attributes:
        call_id: 16 hexadecimal digits, of this call alone.
        span_context: Of its span, or of the span that it ran in. None without one.
        agent: Which agent answered.
    """

    call_id: str
    span_context: SpanContext | None
    agent: str

    @classmethod
    def to(
        cls, call: CapturedCall | None, span_context: SpanContext | None, agent: str
    ) -> Reference:
        """Return the reference to a running call, and mark the call as referenced.

        `call` is None for a call that is not kept: each of its references has another id.
        """
        call_id = None if call is None else call.call_id
        if call_id is None:
            call_id = new_call_id()
        if call is not None:
            call.call_id = call_id
            call.is_referenced = True
        return cls(call_id, span_context, agent)

    def __str__(self) -> str:
        """Return letters, digits, ``-`` and ``_``, a letter first.

        They fit into a header, a URL, a form and a command line. They have no content, and are not
        signed.
        """
        trace_id = 0
        span_id = 0
        flags = 0
        if self.span_context is not None:
            trace_id, span_id, _, flags, *_ = self.span_context
        fixed = _FIXED.pack(
            _VERSION,
            bytes.fromhex(self.call_id),
            trace_id.to_bytes(16),
            span_id.to_bytes(8),
            flags & 0xFF,
        )
        name = self.agent[:_MAX_AGENT].encode("utf-8", "replace")
        return base64.urlsafe_b64encode(fixed + name).decode().rstrip("=")


def read_reference(text: str) -> Reference:
    """Return the reference that was written down. Raise `ValueError` for anything else."""
    if not text.isascii() or len(text) > _MAX_CHARS:
        raise ValueError("not a reference")
    data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if len(data) < _FIXED.size or data[0] != _VERSION:
        raise ValueError("not a reference")
    _, call_id, trace_bytes, span_bytes, flags = _FIXED.unpack_from(data)
    trace_id = int.from_bytes(trace_bytes)
    span_id = int.from_bytes(span_bytes)
    context: SpanContext | None = None
    if trace_id and span_id:
        context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    agent = data[_FIXED.size :].decode("utf-8", "replace")
    return Reference(call_id.hex(), context, clean(agent, _MAX_AGENT))
