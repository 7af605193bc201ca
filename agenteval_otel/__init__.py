"""agenteval_otel."""
