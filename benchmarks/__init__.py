"""Benchmarks: what monitoring costs the caller, what the background manages, what an import takes.

`uv run python -m benchmarks` runs all of them side by side with a bare call, a raw OpenTelemetry span and
`pydantic_evals.online.evaluate`. Each figure is measured in processes of its own, the subjects take turns, and what is
reported is the median over the rounds: read ratios, the microseconds belong to one machine.
"""
