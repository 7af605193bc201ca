"""Model server: a loopback double of the model providers, for tests of agents and judges.

It speaks the three wire formats that most clients use, plain and streamed, and fails on demand as providers and what
stands between do: with an error status, late, byte by byte, in the middle, without an end, reset, or far too long.
"""

from agenteval_otel.testing.model_server.reply import ModelReply
from agenteval_otel.testing.model_server.server import ModelServer

__all__ = ["ModelReply", "ModelServer"]
