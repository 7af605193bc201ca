"""Forms of other frameworks, rewritten into ours when a document is loaded."""

__all__ = ()
