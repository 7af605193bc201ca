"""The sidecar: receives spans and events over OTLP, and evaluates the answers that they show."""
