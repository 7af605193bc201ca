"""Evaluators that compare the response with a reference: by characters, and by embeddings."""

__all__ = ()
