"""The real programs that only the tests of this folder need."""

from .fixtures import *  # noqa: F403
