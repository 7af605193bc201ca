"""HTTP requests to models. Judges and embedders are built on `model.HostedModel`.

Failures are `ModelError`. Importing this package loads no vendor; the first request does.
"""
