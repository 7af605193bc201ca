"""Messages to people: what got worse, what is well again, and how the week went.

The places are imported by their ``type``, and the capability where settings have a place.
"""

from agenteval_otel.engine.capabilities.notify.place import MessagePlace, load_places

for _type in ("slack", "smtp", "webhook"):
    MessagePlace.registry.announce(f"{__name__}.{_type}", _type)

__all__ = ["MessagePlace", "load_places"]
