"""Own random numbers: the host's generator, which it may have seeded, is neither read nor moved."""

from __future__ import annotations

import random
from typing import Final

from agenteval_otel.runtime.fork import reset_in_child

__all__ = ["RANDOM"]

RANDOM: Final = random.Random()
"""The package's generator. A forked child seeds it anew: it would otherwise repeat its siblings' numbers."""
reset_in_child(RANDOM.seed)
