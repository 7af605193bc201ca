"""Offers the real programs to the tests of this folder."""

from .fixtures import collector_binary_fixture, collector_fixture, own_collector_fixture

__all__ = ["collector_binary_fixture", "collector_fixture", "own_collector_fixture"]
