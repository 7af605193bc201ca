"""Benchmarks: what monitoring costs the caller and the host, what the background manages, what happens at the end.

`uv run python -m benchmarks` runs all of them side by side with a bare call, a raw OpenTelemetry span and
`pydantic_evals.online.evaluate`, each figure in processes of its own. Goals are judged as they were set and, by a
calibration in the same run, at this machine's speed. Read ratios, the microseconds belong to one machine.
`python -m benchmarks rival` runs what pydantic-evals fails at with both.
"""
