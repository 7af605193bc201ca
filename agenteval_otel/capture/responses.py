"""Answers and prompts by their shapes, with everything that goes wrong translated."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from agenteval_otel.capture.shapes import answers, prompts, streams
from agenteval_otel.errors import CaptureError

__all__ = ["answer_text", "history_of", "prompt_text", "read_answer", "read_chunks", "read_prompt"]

P = ParamSpec("P")
T = TypeVar("T")


def _translated(read: Callable[P, T]) -> Callable[P, T]:
    """Whatever reading raises becomes a CaptureError."""

    @functools.wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(*args, **kwargs)
        except CaptureError:
            raise
        except Exception as error:
            raise CaptureError(f"no text from {type(args[0]).__name__}: {type(error).__name__}") from error

    return reading


read_answer = _translated(answers.read_answer)
read_chunks = _translated(streams.read_chunks)
read_prompt = _translated(prompts.read_prompt)
history_of = _translated(prompts.history_of)


def answer_text(answer: Any) -> str:
    """The text of an answer.

    Raises:
        CaptureError: It is a stream, or its own methods raised.
    """
    return read_answer(answer).text


def prompt_text(prompt: Any) -> str | None:
    """The question: text as it is, of a list of messages the last one of the user. Raises `CaptureError`."""
    return read_prompt(prompt).prompt
