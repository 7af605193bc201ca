"""HTTP requests to models; failures are `ModelError`.

Importing this loads no vendor; the first request does.
"""
