"""Notices: what the guards have to tell the operator, each once a process."""

from __future__ import annotations

import logging

__all__ = ["say_once"]

_MOST = 64
_said: set[tuple[str, str]] = set()


def say_once(event: str, about: str, **facts: object) -> None:
    """Write a warning to the logger ``agenteval_otel``, once for each event and what it is about; never raises."""
    if (event, about) in _said or len(_said) >= _MOST:
        return
    _said.add((event, about))
    try:
        shown = " ".join(f"{name}={fact!r}" for name, fact in {"event": event, "about": about, **facts}.items())
        logging.getLogger("agenteval_otel").warning("%s", shown[:1000])
    except Exception:  # a handler or filter of the host's: a line is not worth a judgement
        return
