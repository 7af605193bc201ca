"""Model server: a loopback double of the model providers, for tests of agents and judges.

It speaks the three wire formats that most clients use, plain and streamed, and fails on demand as providers do: with
an error status, late, slowly, or in the middle of a stream.
"""

from agenteval_otel.testing.model_server.reply import ModelReply
from agenteval_otel.testing.model_server.server import ModelServer

__all__ = ["ModelReply", "ModelServer"]
