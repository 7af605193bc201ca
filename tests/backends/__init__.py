"""Real programs behind the telemetry: how they are built, started, read and broken, and the tests
that use them.
"""
