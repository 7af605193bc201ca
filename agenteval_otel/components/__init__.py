"""Components: parts that configuration chooses by ``type``, and errors with path and known choices."""

from agenteval_otel.components.component import Component, ListOf

__all__ = ["Component", "ListOf"]
