"""Evaluators of tool calls: `ToolUsage` and `ToolUse`."""

__all__ = ()
