"""The real programs that a reader of the documents starts."""

from tests.backends.fixtures import *  # noqa: F403
