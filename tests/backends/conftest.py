"""The real programs that only the tests of this folder need."""

from __future__ import annotations

from .fixtures import jaeger_binary_fixture, jaeger_fixture, prometheus_binary_fixture, promtool_binary_fixture

__all__ = ["jaeger_binary_fixture", "jaeger_fixture", "prometheus_binary_fixture", "promtool_binary_fixture"]
