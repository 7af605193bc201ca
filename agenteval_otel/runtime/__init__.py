"""What several packages need of the process."""

__all__ = ()
