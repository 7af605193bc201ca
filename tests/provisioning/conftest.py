"""The real programs that read what is provisioned."""

from __future__ import annotations

from tests.backends.fixtures import (
    alertmanager_binary_fixture,
    amtool_binary_fixture,
    collector_binary_fixture,
    jaeger_binary_fixture,
    jaeger_fixture,
    prometheus_binary_fixture,
    promtool_binary_fixture,
)

__all__ = [
    "alertmanager_binary_fixture",
    "amtool_binary_fixture",
    "collector_binary_fixture",
    "jaeger_binary_fixture",
    "jaeger_fixture",
    "prometheus_binary_fixture",
    "promtool_binary_fixture",
]
