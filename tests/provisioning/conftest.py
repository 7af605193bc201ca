"""The real programs that read what is provisioned."""

from __future__ import annotations

from tests.backends.fixtures import (
    amtool_binary_fixture,
    prometheus_binary_fixture,
    promtool_binary_fixture,
)

__all__ = ["amtool_binary_fixture", "prometheus_binary_fixture", "promtool_binary_fixture"]
