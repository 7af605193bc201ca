"""Benchmarks: what monitoring costs the caller and the host, and what the background thread
manages.

`uv run python -m benchmarks speed` is the speed table, with the rivals in the same run.
`uv run python -m benchmarks` runs everything else side by side with a bare call, a raw
OpenTelemetry span and `pydantic_evals.online.evaluate`, each figure in processes of its own.
`python -m benchmarks rival` runs what pydantic-evals fails at with both. Read ratios: the
microseconds belong to one machine.
"""
