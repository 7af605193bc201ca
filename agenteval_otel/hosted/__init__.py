"""Hosted: what asking a model over HTTP has in common, whatever it is asked for; judges and embedders stand on it.

`model` holds the settings, the deadline and the one layer of retries; `addresses` says where may be asked, `http` is
the client, `clients` keeps one for each event loop, `replies` reads what came back and `quiet` keeps all of it out of
the host's logs and traces. `locks` and `copies` are for whatever is held beside. Failures are `ModelError`, which the
rooms above turn into their own. Importing this room loads no vendor; the first question does.
"""

from __future__ import annotations

from agenteval_otel.hosted.model import HostedModel

__all__ = ["HostedModel"]
