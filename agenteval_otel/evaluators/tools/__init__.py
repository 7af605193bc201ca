"""Evaluators of tool calls: `ToolUsage` and `ToolUse`."""
