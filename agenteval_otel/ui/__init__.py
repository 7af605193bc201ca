"""`agenteval-otel ui`: pages over stored results, on this machine alone."""
