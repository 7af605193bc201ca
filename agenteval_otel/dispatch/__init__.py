"""Dispatchers: where evaluations run."""

from agenteval_otel.dispatch.base import Dispatcher, Done, InlineDispatcher, one_by_one
from agenteval_otel.dispatch.pool import PoolDispatcher

__all__ = ["Dispatcher", "Done", "InlineDispatcher", "PoolDispatcher", "one_by_one"]
