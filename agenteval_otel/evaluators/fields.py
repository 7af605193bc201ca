"""The fields of an input that an evaluator may be told to read, checked when it is configured."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

__all__ = ["TextField"]

_ROOTS = ("response", "prompt", "groundTruth", "ground_truth", "context")


def _known(value: str) -> str:
    if value and value.partition(".")[0] not in _ROOTS:
        raise ValueError("expected response, prompt, groundTruth or context, or a path below (context.<path>)")
    return value


TextField = Annotated[str, AfterValidator(_known)]
"""The path of a text in the input, by the rules of `EvaluationInput.text_at`."""
