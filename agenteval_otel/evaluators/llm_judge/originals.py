"""The originals' ways of writing an `LLMJudge`, told in our words: what they imply, and what they demand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.alias_generators import to_camel

from agenteval_otel.errors import ConfigurationError

__all__ = ["as_ours"]


def as_ours(data: Mapping[str, Any], *, known: set[str]) -> dict[str, Any]:
    """The fields of an ``evaluatorConfigs`` entry, with what they imply there.

    AgentDock's has ``criterionName``, ``llm`` and ``promptTemplate``: texts stand in the template, the reply is a score
    with its reasoning, nothing is refused before. GoGrid's has ``rubric``: the reply is two lines, and the texts are
    data unless a template brings its own place for them. Fields that nobody knows are left out, as the originals do.

    Raises:
        ConfigurationError: What they refuse too: no criterion's name, no template, neither of which GoGrid's needs.
    """
    names = known | {to_camel(name) for name in known} | {"llm", "provider", "type"}
    fields = {name: value for name, value in data.items() if name in names and value is not None}
    template = fields.get("promptTemplate", fields.get("prompt_template"))
    implied: dict[str, Any] = {"refuse_degenerate": False, "needs": ()}
    if fields.get("rubric") is not None:
        implied |= {"reply_form": "lines", "placement": "data" if template is None else "inline"}
    else:
        implied |= {"reply_form": "score", "placement": "inline"}
        for name, value in (("criterion_name", fields.get("criterionName", fields.get("criterion_name"))),
                            ("prompt_template", template)):  # fmt: skip
            if value is None or (isinstance(value, str) and not value.strip()):
                said = "required field is missing" if value is None else "must not be blank"
                raise ConfigurationError(said, path=name)
    return {
        name: value for name, value in implied.items() if name not in fields and to_camel(name) not in fields
    } | fields
