"""Dispatchers: where evaluations run."""

from agenteval_otel.dispatch.base import Dispatcher, InlineDispatcher
from agenteval_otel.dispatch.pool import PoolDispatcher

__all__ = ["Dispatcher", "InlineDispatcher", "PoolDispatcher"]
