"""The real programs that only the tests of this folder need."""

from __future__ import annotations

from .fixtures import (
    alertmanager_binary_fixture,
    amtool_binary_fixture,
    compose_binary_fixture,
    jaeger_binary_fixture,
    jaeger_fixture,
    kubernetes_validate_fixture,
    loki_binary_fixture,
    loki_fixture,
    prometheus_binary_fixture,
    promtool_binary_fixture,
)

__all__ = [
    "alertmanager_binary_fixture",
    "amtool_binary_fixture",
    "compose_binary_fixture",
    "jaeger_binary_fixture",
    "jaeger_fixture",
    "kubernetes_validate_fixture",
    "loki_binary_fixture",
    "loki_fixture",
    "prometheus_binary_fixture",
    "promtool_binary_fixture",
]
