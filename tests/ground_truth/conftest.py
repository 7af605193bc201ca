"""A real PostgreSQL for the tests that ask for one."""

from tests.backends.fixtures import (
    postgresql_binary_fixture,
    postgresql_fixture,
    postgresql_server_fixture,
)

__all__ = ["postgresql_binary_fixture", "postgresql_fixture", "postgresql_server_fixture"]
