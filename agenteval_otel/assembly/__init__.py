"""Assembly: spans that arrive in any order, put together by trace until an answer is complete."""

from agenteval_otel.assembly.traces import AssembledTrace, TraceAssembler

__all__ = ["AssembledTrace", "TraceAssembler"]
