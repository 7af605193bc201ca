"""No thread outlives a test of this room; a real PostgreSQL for those that ask for one."""

from tests.backends.fixtures import postgresql_binary_fixture, postgresql_fixture, postgresql_server_fixture
from tests.testing.threads import no_thread_left

__all__ = ["no_thread_left", "postgresql_binary_fixture", "postgresql_fixture", "postgresql_server_fixture"]
