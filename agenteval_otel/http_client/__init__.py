"""HTTP requests to models; failures are `ModelError`. Importing this package loads no vendor; the first request does."""
