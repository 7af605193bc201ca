"""Evaluation with the evaluators of a request: types of a closed list, in a process of its own.

A request decides patterns, lists and texts. So its evaluators never run in the process that takes
spans: a worker process without secrets, at the lowest priority, loads and runs them.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from agenteval_otel.capture.otlp.body import REFUSAL_CHARS, Refusal
from agenteval_otel.components.explained import known_choices
from agenteval_otel.errors import ConfigurationError, EvaluationError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.evaluators.base import Execution
from agenteval_otel.evaluators.compat import ENTRIES
from agenteval_otel.evaluators.sentiment import AFINN, BUILTIN
from agenteval_otel.models import (
    AggregatedEvaluationResult,
    EvaluationCriteria,
    EvaluationInput,
    EvaluationResult,
)
from agenteval_otel.offline.config import EvaluationRunConfig, as_input
from agenteval_otel.offline.run import run_evaluation
from agenteval_otel.runtime.reentrancy import PROCESS

TYPES: Final = frozenset({
    "CompletedWithin", "Contains", "CostWithin", "DefinedTools", "ErrorRecovery", "ExactMatch", "KeywordCoverage",
    "LexicalSimilarity", "Repetition", "ResponseHealth", "RuleBased", "Sentiment", "StepEfficiency", "ToolLoops",
    "ToolUsage", "ToolUse", "Toxicity", "TrajectoryMatch", "TurnsToResolution", "UnansweredQuestions",
})  # fmt: skip
"""The evaluators that a request may name: built in, and none of them asks a model, connects to a
host or runs a function.
"""
FIELDS: Final = (
    "input", "evaluators", ENTRIES, "criteria", "aggregation", "execution", "tags", "metadata",
)  # fmt: skip
"""What a request may have. The other fields of an `EvaluationRunConfig` are the server's."""
MAX_ITEMS: Final = 100
"""The most evaluators, and the most criteria, of one request."""
LIMIT_S: Final = 10.0
"""How long the evaluators of one request may take together."""
MAX_REPLY_BYTES: Final = 2 * 1024 * 1024
TOO_LARGE: Final = Refusal(413, f"the result is larger than {MAX_REPLY_BYTES:,} bytes")
_MEMORY_BYTES: Final = 256 * 1024 * 1024
_TOO_MUCH: Final = 413, "not evaluated: it takes too much memory"
_REQUEST: Final = "request"
_STATUS: Final = "status"
_BODY: Final = "body"
_WARM_UP: Final = {
    "input": {"response": "warm-up"},
    "evaluators": [
        {"type": "RuleBased", "rules": [{"criterion": "any", "type": "regex", "pattern": "a"}]}
    ],
    "execution": ["inline"],
}
_READS_FILES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "Toxicity": {"terms_file": (), "termsFile": ()},
    "Sentiment": {"lexicon": (BUILTIN, AFINN)},
}
"""Fields that name a file, with the values that do not."""


def check_fields(request: Mapping[str, Any]) -> None:
    """Check that a request has known fields alone, and names evaluators of the closed list.

    Raises:
        ConfigurationError: With the path of the first wrong field, and what is possible there.
    """
    for name in request:
        if name not in FIELDS:
            whose = "unknown, or decided by the settings of the server"
            raise ConfigurationError(f"{whose}{known_choices(name, FIELDS)}", path=str(name)[:80])
    if "input" not in request:
        raise ConfigurationError("required field is missing", path="input")
    if "evaluators" in request and ENTRIES in request:
        raise ConfigurationError(f"give evaluators or {ENTRIES}, not both", path="evaluators")
    for name in ("evaluators", ENTRIES):
        if name in request:
            entries = _list_at(request, name)
            for place, entry in enumerate(entries):
                _check_entry(entry, f"{name}[{place}]")
    if request.get("criteria") is not None:
        _list_at(request, "criteria")
    fields = request["input"]
    if isinstance(fields, Mapping) and isinstance(fields.get("criteria"), list):
        _list_at(fields, "criteria", below="input.")


def _list_at(fields: Mapping[str, Any], name: str, *, below: str = "") -> list[Any]:
    value = fields[name]
    if not isinstance(value, list):
        raise ConfigurationError(
            f"expected a list, found {type(value).__name__}", path=f"{below}{name}"
        )
    if len(value) > MAX_ITEMS:
        raise ConfigurationError(
            f"expected at most {MAX_ITEMS}, found {len(value):,}", path=f"{below}{name}"
        )
    return value


def _check_entry(entry: object, path: str) -> None:
    fields = {"type": entry} if isinstance(entry, str) else entry
    if not isinstance(fields, Mapping):
        wrong = "expected the name of a type, or an object with 'type'"
        raise ConfigurationError(f"{wrong}, found {type(entry).__name__}", path=path)
    name = fields.get("type")
    if not isinstance(name, str) or name not in TYPES:
        shown = "'type' is missing" if name is None else f"{str(name)[:80]!r} is not for requests"
        hint = ""
        if isinstance(name, str) and name in Evaluator.registry:
            hint = ": it needs a model or the server's code. Without evaluators, those of the server's settings run"
        raise ConfigurationError(
            f"{shown}{hint}{known_choices(name, sorted(TYPES))}", path=f"{path}.type"
        )
    for allowed_in, level in (("", fields), (".config", fields.get("config"))):
        if not isinstance(level, Mapping):
            continue
        for field, harmless in _READS_FILES.get(name, {}).items():
            if level.get(field) is not None and level[field] not in harmless:
                wrong = "a request cannot name a file of the server"
                choices = f": expected {' or '.join(harmless)}" if harmless else ""
                raise ConfigurationError(f"{wrong}{choices}", path=f"{path}{allowed_in}.{field}")


def input_of(request: Mapping[str, Any]) -> EvaluationInput:
    """Return the input of a request, else raise `ConfigurationError` with the path."""
    return as_input(request["input"], path="input")


def config_fields(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request that are those of an `EvaluationRunConfig`."""
    return {name: value for name, value in request.items() if name != "input" and value is not None}


def json_of(aggregated: AggregatedEvaluationResult) -> str:
    """Return the result as stored results are written: camelCase, without empty fields."""
    return aggregated.model_dump_json(by_alias=True, exclude_none=True)


def as_job(text: str) -> EvaluationInput:
    """Return the input of `RequestedEvaluation` that carries a request."""
    return EvaluationInput(response="", metadata={_REQUEST: text})


def reply_of(results: Sequence[EvaluationResult]) -> tuple[int, str]:
    """Return the HTTP status and the body that `RequestedEvaluation` gave."""
    facts = results[0].metadata or {}
    return int(facts[_STATUS]), str(facts[_BODY])


class RequestedEvaluation(Evaluator):
    """Evaluates a whole request in a process of its own. Its only result carries the reply.

    Settings cannot choose it: it has no type. Outside of a worker process it raises.
    """

    timeout_s: float | None = LIMIT_S

    def preferred_execution(self) -> Execution | None:
        return "process"

    def prepare(self) -> None:
        """Load what most requests need, before any is forked: each would load it anew."""
        for name in TYPES:
            Evaluator.registry[name].model_rebuild()
        _reply(json.dumps(_WARM_UP))

    async def evaluate(
        self, evaluation_input: EvaluationInput, criteria: Sequence[EvaluationCriteria]
    ) -> list[EvaluationResult]:
        """Return the reply. Awaits nothing, as every evaluator of a worker process."""
        if not PROCESS.is_ours:
            raise EvaluationError("no worker process can be started", error_type="unavailable")
        facts = evaluation_input.metadata or {}
        status, body = _in_fork(lambda: _reply(facts[_REQUEST]))
        return [
            EvaluationResult(
                criterion_name=_REQUEST,
                evaluator_type=self.type,
                score=True,
                metadata={_STATUS: status, _BODY: body},
            )
        ]


def _reply(text: str) -> tuple[int, str]:
    try:
        request = json.loads(text)
        evaluation_input = input_of(request)
        # Nothing of it goes to a model or a storage, so nothing is redacted.
        config = EvaluationRunConfig.model_validate({**config_fields(request), "redactors": []})
        return 200, json_of(asyncio.run(run_evaluation(evaluation_input, config)))
    except ConfigurationError as error:
        return 400, str(error)[:REFUSAL_CHARS]  # more of it could be too large for a reply
    except MemoryError:
        return _TOO_MUCH
    except Exception:
        return 500, "not evaluated: an error of the receiver"


def _in_fork(work: Callable[[], tuple[int, str]]) -> tuple[int, str]:
    """Return what the work gives, in a fork with limited memory that ends with it.

    So no request finds what an earlier one has left in caches, memory and threads.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            signal.alarm(math.ceil(2 * LIMIT_S))  # it ends also where its worker is gone
            _limit_memory()
            answer = json.dumps(work(), ensure_ascii=False).encode()
            with open(writer, "wb") as file:
                file.write(answer)
        os._exit(0)
    os.close(writer)
    try:
        with open(reader, "rb") as file:
            answer = file.read(MAX_REPLY_BYTES + 1)
    finally:
        os.waitpid(pid, 0)
    if not answer:  # it has ended without one: mostly a library that found no memory
        return _TOO_MUCH
    if len(answer) > MAX_REPLY_BYTES:
        return TOO_LARGE.status, TOO_LARGE.message
    status, body = json.loads(answer)
    return status, body


def _limit_memory() -> None:
    """Let this process grow by `_MEMORY_BYTES` at most. Does nothing if the system cannot limit it."""
    with suppress(ImportError, OSError, ValueError, IndexError):
        import resource

        with open("/proc/self/statm", "rb") as file:
            data_bytes = int(file.read().split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (data_bytes + _MEMORY_BYTES,) * 2)
