"""DefinedTools: whether the tools that were called exist, and got the arguments that they take."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Self

from pydantic import model_validator

from agenteval_otel.errors import ConfigurationError, EvaluationError, EvaluationSkipped
from agenteval_otel.evaluators.base import Execution
from agenteval_otel.evaluators.json_schema import compiled
from agenteval_otel.evaluators.tools.calls import parsed_arguments, tool_definitions, trajectory_of
from agenteval_otel.evaluators.tools.steps import TrajectoryEvaluator
from agenteval_otel.models import EvaluationInput, Score

_KEPT_CHARS = 16 * 1024
_SCHEMAS = ("parameters", "input_schema", "inputSchema")


class DefinedTools(TrajectoryEvaluator, type="DefinedTools"):
    """Scores the share of tool calls whose tool is defined and whose arguments are valid.

    The arguments have to be valid by the tool's JSON Schema. The evaluator passes with a score of
    1.

    Definitions are the agent's: ``tools`` of `EvaluationInput.agent_config`, else of the context,
    in the form of OpenAI, Anthropic, MCP or ``{name, parameters}``. Skipped without definitions or
    calls.

    Attributes:
        check_arguments: False looks at names alone. Arguments need the extra ``jsonschema``.
    """

    criterion_name: str = "defined_tools"
    check_arguments: bool = True

    @model_validator(mode="after")
    def _has_its_extra(self) -> Self:
        if self.check_arguments:
            try:
                compiled(True)
            except ConfigurationError as error:
                raise ValueError(f"{error}, or set check_arguments: false") from None
        return self

    def preferred_execution(self) -> Execution | None:
        return None if self.check_arguments else "inline"

    def score(self, evaluation_input: EvaluationInput) -> Score:
        calls = trajectory_of(evaluation_input)
        schemas = _schemas_of(tool_definitions(evaluation_input))
        if not schemas:
            raise EvaluationSkipped("no tool definitions")
        undefined = [call.name for call in calls if call.name not in schemas]
        wrong: list[str] = []
        if self.check_arguments:
            for call in calls:
                if call.name not in schemas:
                    continue
                problem = _problem(schemas[call.name], call.arguments)
                if problem is not None:
                    wrong.append(f"{call.name}: {problem}")
        number = len(undefined) + len(wrong)
        if not number:
            return Score(
                value=1.0, passed=True, reasoning=f"{len(calls)} calls as their tools are defined"
            )
        shown = [f"{name} is not defined" for name in dict.fromkeys(undefined)]
        shown += wrong
        return Score(
            value=1.0 - number / len(calls),
            passed=False,
            reason_code="undefined_tool" if undefined else "invalid_arguments",
            reasoning=f"{number} of {len(calls)} calls: {', '.join(shown[:5])}",
        )


def _schemas_of(definitions: object) -> dict[str, Any]:
    """Return the JSON Schema of the arguments by the tool's name.

    The schema is None if a definition has none.
    """
    if not isinstance(definitions, list | tuple):
        return {}
    schemas: dict[str, Any] = {}
    for tool in definitions:
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            own_schemas = [function[key] for key in _SCHEMAS if function.get(key) is not None]
            schemas[function["name"]] = own_schemas[0] if own_schemas else None
    return schemas


def _problem(schema: object, arguments: object) -> str | None:
    if schema is None:
        return None
    value = parsed_arguments(arguments)
    try:
        text = json.dumps(schema, sort_keys=True)
        # Schemas may come from outside: without this bound 256 of any length would be kept.
        check = _compiled(text) if len(text) <= _KEPT_CHARS else compiled(json.loads(text))
        problems = check({} if value in (None, "") else value)
    except (ConfigurationError, TypeError, ValueError) as error:
        raise EvaluationError(
            f"the tool's definition: {error}", error_type="invalid_schema"
        ) from None
    return problems[0] if problems else None


@lru_cache(maxsize=256)
def _compiled(text: str) -> Callable[[Any], list[str]]:
    return compiled(json.loads(text))
