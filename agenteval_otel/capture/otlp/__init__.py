"""OTLP as it comes in: bodies of requests, files, and its JSON form."""
