"""A model provider on loopback, for tests of agents and judges.

It speaks the wire formats that most clients use, plain and streamed, and fails on demand as providers and networks do.
"""

from agenteval_otel.testing.model_server.reply import ModelReply
from agenteval_otel.testing.model_server.server import ModelServer

__all__ = ["ModelReply", "ModelServer"]
