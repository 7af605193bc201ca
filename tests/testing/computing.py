"""Evaluators that compute, hang or end their process, in a module that another process can import."""

from __future__ import annotations

import builtins
import ctypes
import os
import time
from typing import Any, ClassVar

from agenteval_otel import monitor
from agenteval_otel.errors import EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators import CriterionEvaluator
from agenteval_otel.evaluators.base import Execution, failure_of
from agenteval_otel.models import EvaluationInput, Score

__all__ = [
    "Computing",
    "Filling",
    "Free",
    "Looking",
    "Secretive",
    "Troubled",
    "compute",
    "is_elsewhere",
    "is_long",
]


def compute(cpu_s: float) -> int:
    """Hold the interpreter for so much CPU time."""
    end, turns = time.thread_time() + cpu_s, 0
    while time.thread_time() < end:
        turns += 1
    return turns


def is_elsewhere(evaluation_input: EvaluationInput) -> bool:
    """Whether it runs in another process than the one that set ``builtins.is_host``."""
    return not hasattr(builtins, "is_host")


class Computing(CriterionEvaluator, type="Computing"):
    """Computes for so long, and says where."""

    criterion_name: str = "computing"
    execution: Execution | None = "process"
    cpu_s: float = 0.0

    def score(self, evaluation_input: EvaluationInput) -> Score:
        compute(self.cpu_s)
        return Score(
            value=0.5, metadata={"pid": os.getpid(), "length": len(evaluation_input.response_text)}
        )


class Free(Computing, type="ComputingFree"):
    """The same, but says that it takes microseconds."""

    criterion_name: str = "computing_free"
    execution: Execution | None = None

    def preferred_execution(self) -> Execution:
        return "inline"


class Troubled(CriterionEvaluator, type="Troubled"):
    """Does what the answer says: hang, crash, leave, raise; else it scores."""

    criterion_name: str = "troubled"
    execution: Execution | None = "process"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        word = evaluation_input.response_text
        if word == "hang":
            while True:
                pass
        if word == "segfault":
            ctypes.string_at(0)
        if word == "_exit":
            os._exit(3)
        errors = {
            "exit": SystemExit(3),
            "value": ValueError("no use"),
            "key": KeyError("k"),
            "skip": EvaluationSkipped("no"),
            "word": EvaluationError("broke", error_type="own_word"),
            "own": Peculiar("p"),
            "unicode": OSError("\ud800"),
        }
        if word in errors:
            raise errors[word]
        return Score(value=1.0, reasoning=word, reason_code="fine")


class Peculiar(EvaluationError):
    """An error class of an evaluator's own."""


class Filling(Troubled, type="Filling"):
    """Gives a failed result with a filler, a list of nothing that is known, or metadata without a
    JSON form.
    """

    def score(self, evaluation_input: EvaluationInput) -> Any:
        word = evaluation_input.response_text
        if word == "filler":
            return failure_of(self, self.criterion_name, "broke", error_type="x", filler=False)
        if word == "metadata":
            return Score(
                value="good", metadata={"half": "\ud800", "n": 1, "list": [1, None, 2.5, True]}
            )
        return 7


class Looking(CriterionEvaluator, type="Looking"):
    """Tells the environment that it sees, its priority, and whether a monitored handler is
    evaluated here.
    """

    criterion_name: str = "looking"
    execution: Execution | None = "process"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        handled("here")
        facts = {"environment": dict(os.environ), "nice": os.nice(0), "input": len(os.read(0, 1))}
        return Score(value=1.0, metadata=facts)


class Secretive(Looking, type="Secretive"):
    """Needs a key of its own."""

    criterion_name: str = "secretive"
    api_key: str = ""
    child_environment: ClassVar[tuple[str, ...]] = ("COMPUTING_KEY",)

    def score(self, evaluation_input: EvaluationInput) -> Score:
        return Score(
            value=1.0, metadata={"key": self.api_key, "variable": os.environ.get("COMPUTING_KEY")}
        )


@monitor
def handled(question: str) -> str:
    """A monitored handler that an evaluator calls."""
    return question


def is_long(evaluation_input: EvaluationInput) -> bool:
    """A function as an evaluator."""
    return len(evaluation_input.response_text) > 3
