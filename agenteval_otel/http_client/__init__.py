"""What HTTP requests to a model have in common; judges and embedders are built on it.

`model` holds the settings, the deadline and the retries; `client` is the HTTP client, `clients` keeps one per loop,
`replies` reads responses. Failures are `ModelError`. Importing this package loads no vendor; the first request does.
"""

from __future__ import annotations

from agenteval_otel.http_client.model import HostedModel

__all__ = ["HostedModel"]
