"""The error tree: what this package raises, and when.

Errors are raised at start (configuration) and to callers of the offline API. In a monitored process
nothing of this reaches the host: the pipeline counts it instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = [
    "AgentEvalError",
    "ConfigurationError",
    "EvaluationError",
    "EvaluationSkipped",
    "GroundTruthError",
    "JudgeError",
    "ModelError",
    "StorageError",
]


class AgentEvalError(Exception):
    """Root of every error that this package raises."""


class ConfigurationError(AgentEvalError):
    """A setting is wrong: raised at start, never while answers are evaluated.

    Args:
        message: The value, what was expected, what to do.
        path: Where the setting stands, such as ``evaluators[0].at_least``.

    Attributes:
        problems: Everything that is wrong, each with its path. `path` is that of the first.
    """

    def __init__(self, message: str, *, path: str | None = None) -> None:
        self.path = path
        self.problems: tuple[tuple[str | None, str], ...] = ((path, message),)
        super().__init__(f"{path}: {message}" if path else message)

    @staticmethod
    def of(problems: Sequence[tuple[str | None, str]]) -> ConfigurationError:
        """Return one error of several problems."""
        lines = [f"{path}: {message}" if path else message for path, message in problems]
        error = ConfigurationError(". ".join(lines))
        error.problems = tuple(problems)
        error.path = error.problems[0][0] if problems else None
        return error

    def with_prefix(self, path: str | None) -> ConfigurationError:
        """Return the same error with its paths below `path`, for a part inside another."""
        if not path:
            return self
        return self.of([(_joined(path, inner), message) for inner, message in self.problems])


def _joined(path: str, inner: str | None) -> str:
    separator = "" if not inner or inner.startswith("[") else "."
    return f"{path}{separator}{inner or ''}"


class EvaluationError(AgentEvalError):
    """An evaluator broke: a failure, which never becomes a score.

    Args:
        message: What broke.
        error_type: Low-cardinality word for ``error.type``. It is the class name when left out.
    """

    def __init__(self, message: str, *, error_type: str | None = None) -> None:
        self.error_type = error_type or type(self).__name__
        super().__init__(message)


class ModelError(EvaluationError):
    """A model that was asked over the network gave no answer, or an embedder no vectors.

    Args:
        message: What happened, without the provider's own text.
        error_type: Which way it failed, in a word of a closed list.
        retryable: Whether asking again may help.
        usage: The provider's count of tokens, as a `JudgeUsage` or an `EmbedderUsage`. It is None
            if the provider gave none.
        retry_after_s: How long the provider asks to wait.

    Attributes:
        is_unreadable: Whether a whole reply came, and it is not in the form.
        reply_begins: How the text begins that could not be read, redacted. It is content, so it
            does not stand in the message.
    """

    def __init__(
        self,
        message: str,
        *,
        error_type: str | None = None,
        retryable: bool = False,
        usage: Any = None,
        retry_after_s: float | None = None,
    ) -> None:
        self.retryable = retryable
        self.usage = usage
        self.retry_after_s = retry_after_s
        self.reply_begins: str | None = None
        self.is_unreadable = False
        super().__init__(message, error_type=error_type)


class JudgeError(ModelError):
    """Says that the model that judges gave no answer. ``error_type`` is one of `judges.ERROR_TYPES`.

    Attributes:
        probability: With what probability the budget let the call be made. It is 1 if nothing
            limits the call.
        may_be_charged: The provider may have charged it, whatever the error's type.
        cost_usd: The price of what it used all the same. It is None if the price is unknown.
    """

    probability: float = 1.0
    may_be_charged: bool = False
    cost_usd: float | None = None


class StorageError(AgentEvalError):
    """A storage provider could not save a result."""


class GroundTruthError(AgentEvalError):
    """A store could not look for a ground truth: the answer is evaluated without.

    Args:
        message: What happened, without content.
        reason: Counted as ``ground_truth:<reason>``, a word of a closed list.
    """

    def __init__(self, message: str, *, reason: str) -> None:
        self.reason = reason
        super().__init__(message)


class EvaluationSkipped(Exception):
    """Raised by an evaluator that has nothing to say: counted as a skip, not as a failure."""
