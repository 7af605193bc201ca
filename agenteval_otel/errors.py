"""The error tree: what this package raises, and when.

Errors are raised at start (configuration) and to callers of the offline API. In a monitored process nothing of this
reaches the host: the pipeline counts it instead.
"""

from __future__ import annotations

__all__ = [
    "AgentEvalError",
    "CaptureError",
    "ConfigurationError",
    "EvaluationError",
    "EvaluationSkipped",
    "JudgeError",
    "StorageError",
]


class AgentEvalError(Exception):
    """Root of every error that this package raises."""


class ConfigurationError(AgentEvalError):
    """A setting is wrong: raised at start, never while answers are evaluated.

    Args:
        message: What was found, what was expected, what to do.
        path: Where the setting stands, such as ``evaluators[0].at_least``.
    """

    def __init__(self, message: str, *, path: str | None = None) -> None:
        self.path = path
        super().__init__(f"{path}: {message}" if path else message)


class CaptureError(AgentEvalError):
    """An answer could not be turned into an evaluation input."""


class EvaluationError(AgentEvalError):
    """An evaluator broke: a failure, which never becomes a score.

    Args:
        message: What broke.
        error_type: Low-cardinality word for ``error.type``; the class name when left out.
    """

    def __init__(self, message: str, *, error_type: str | None = None) -> None:
        self.error_type = error_type or type(self).__name__
        super().__init__(message)


class JudgeError(EvaluationError):
    """The model that judges failed; ``retryable`` says whether asking again may help."""

    def __init__(self, message: str, *, error_type: str | None = None, retryable: bool = False) -> None:
        self.retryable = retryable
        super().__init__(message, error_type=error_type)


class StorageError(AgentEvalError):
    """A storage provider could not save a result."""


class EvaluationSkipped(Exception):
    """Raised by an evaluator that has nothing to say: counted as a skip, not as a failure."""
