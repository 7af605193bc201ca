"""The engine: evaluators on inputs, live and offline."""
