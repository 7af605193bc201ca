"""No thread outlives a test of this room; a real PostgreSQL, MLflow and Phoenix for those that ask
for one.
"""

from tests.backends.fixtures import (
    mlflow_binary_fixture,
    phoenix_binary_fixture,
    postgresql_binary_fixture,
    postgresql_fixture,
    postgresql_server_fixture,
    receivers_fixture,
)
from tests.testing.threads import no_thread_left

__all__ = [
    "mlflow_binary_fixture",
    "no_thread_left",
    "phoenix_binary_fixture",
    "postgresql_binary_fixture",
    "postgresql_fixture",
    "postgresql_server_fixture",
    "receivers_fixture",
]
