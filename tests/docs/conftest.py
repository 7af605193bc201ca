"""The real programs that a reader of the documents starts."""

from __future__ import annotations

from tests.backends.fixtures import (
    jaeger_binary_fixture,
    jaeger_fixture,
    prometheus_binary_fixture,
    promtool_binary_fixture,
)

__all__ = ["jaeger_binary_fixture", "jaeger_fixture", "prometheus_binary_fixture", "promtool_binary_fixture"]
