"""No thread outlives a test of this folder."""

from tests.testing.threads import no_thread_left

__all__ = ["no_thread_left"]
