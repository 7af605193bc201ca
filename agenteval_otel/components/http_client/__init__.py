"""HTTP requests to models. Failures are `ModelError`.

Importing this loads no vendor. The first request does.
"""
