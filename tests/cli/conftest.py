"""No thread outlives a test of this room; and a running Jaeger for those that ask."""

from tests.backends.fixtures import jaeger_binary_fixture, jaeger_fixture
from tests.testing.threads import no_thread_left

__all__ = ["jaeger_binary_fixture", "jaeger_fixture", "no_thread_left"]
