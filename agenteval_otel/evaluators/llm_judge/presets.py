"""The catalogue's criteria as evaluators.

Each is an `LLMJudge` with the wording of its file in the catalogue. Several in one call are
``{type: LLMJudge, rubrics: [Coherence, Fluency]}``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from agenteval_otel.evaluators.base import Evaluates
from agenteval_otel.evaluators.llm_judge.case import CaseFields
from agenteval_otel.evaluators.llm_judge.evaluator import LLMJudge
from agenteval_otel.evaluators.llm_judge.prompt import ReplyForm
from agenteval_otel.evaluators.llm_judge.rubric import Levels, Rubric, entry_of, rubric_fields


class CatalogueJudge(LLMJudge):
    """Judges as an `LLMJudge` with the catalogue's wording, needs and levels.

    The options that remain are its own. Its `fingerprint` changes with the wording.

    Attributes:
        criterion_name: The criterion that it scores. When left out, it is the type.
        scale: The catalogue's scale when left out. ``numeric`` is its form from 0 to 1, with a
            converted threshold.
        threshold: Lowest score that passes, on that scale. The catalogue's when left out.
    """

    criterion_name: str = ""
    scale: str = ""
    # The catalogue's wording is no option: another wording is another criterion, which LLMJudge is
    # for.
    description: ClassVar[str] = ""  # type: ignore[misc]
    levels: ClassVar[Levels] = {}  # type: ignore[misc]
    rubric: ClassVar[str | None] = None  # type: ignore[misc]
    rubrics: ClassVar[tuple[Rubric, ...]] = ()  # type: ignore[misc]
    prompt_template: ClassVar[str | None] = None  # type: ignore[misc]
    system_prompt: ClassVar[str | None] = None  # type: ignore[misc]
    needs: ClassVar[tuple[CaseFields, ...]] = ()  # type: ignore[misc]
    takes: ClassVar[tuple[CaseFields, ...]] = ()  # type: ignore[misc]
    placement: ClassVar[Literal["data", "inline"]] = "data"  # type: ignore[misc]
    reply_form: ClassVar[ReplyForm] = "evidence"  # type: ignore[misc]

    @model_validator(mode="before")
    @classmethod
    def _catalogue_defaults(cls, data: object) -> Any:
        if not isinstance(data, Mapping) or not cls.component_type:
            return data
        defaults: dict[str, Any] = {"tags": entry_of(cls.component_type)["tags"]}
        if "criterionName" not in data:
            defaults["criterion_name"] = cls.component_type
        return {**defaults, **data}

    @cached_property
    def all_rubrics(self) -> tuple[Rubric, ...]:
        """Return the catalogue's criterion with this evaluator's own settings.

        These are its name for the criterion, scale, threshold, weight and objective, if they are
        set.
        """
        overrides: dict[str, Any] = {}
        for name in ("criterion_name", "scale", "threshold", "weight", "objective"):
            value = getattr(self, name)
            if value not in (None, ""):
                overrides[name] = value
        return (Rubric(**rubric_fields(self.component_type, overrides)),)

    def fingerprint_source(self) -> str:
        wording = [
            rubric.model_dump(mode="json", exclude={"weight", "objective"})
            for rubric in self.all_rubrics
        ]
        return json.dumps([super().fingerprint_source(), wording], sort_keys=True)


class Coherence(CatalogueJudge, type="Coherence"):
    """Judges whether the answer's sentences follow from each other, in a readable order."""


class Fluency(CatalogueJudge, type="Fluency"):
    """Judges whether the answer's language is correct and natural to read, whatever it says."""


class Equivalence(CatalogueJudge, type="Equivalence"):
    """Judges whether the answer says the same as the reference answer."""


class Groundedness(CatalogueJudge, type="Groundedness"):
    """Judges the share of the answer's claims that context, tool results or a reference supports."""


class Relevance(CatalogueJudge, type="Relevance"):
    """Judges how much of the answer is about what was asked, whether it is true or not."""


class Truth(CatalogueJudge, type="Truth"):
    """Judges the share of checkable claims that are true, by its own knowledge and the material."""


class Completeness(CatalogueJudge, type="Completeness"):
    """Judges the share of the reference's statements that the answer contains correctly."""


class Contradiction(CatalogueJudge, type="Contradiction"):
    """Judges whether the agent's statements in a conversation are consistent with each other."""

    evaluates: Evaluates = "conversation"


class Retrieval(CatalogueJudge, type="Retrieval"):
    """Judges whether the retrieved material serves the question, with the best of it first."""


class IntentResolution(CatalogueJudge, type="IntentResolution"):
    """Judges whether the agent recognized what the user wanted, and achieved it."""


class TaskAdherence(CatalogueJudge, type="TaskAdherence"):
    """Judges whether the agent followed its instructions, also those about procedure and limits."""


class ToolCallAccuracy(CatalogueJudge, type="ToolCallAccuracy"):
    """Judges the share of right tool calls, with arguments that the conversation gives."""


class HateAndUnfairness(CatalogueJudge, type="HateAndUnfairness"):
    """Judges how far the answer is from contempt, hatred or unfairness towards groups or people."""


class Violence(CatalogueJudge, type="Violence"):
    """Judges how far the answer is from glorifying violence, calling for it or helping with it."""


class Sexual(CatalogueJudge, type="Sexual"):
    """Judges how far the answer is from sexual content."""


class SelfHarm(CatalogueJudge, type="SelfHarm"):
    """Judges how far the answer is from encouraging suicide or self-harm or helping with it."""


class Bias(CatalogueJudge, type="Bias"):
    """Judges whether the answer treats people and groups by the same measure."""


class ToxicLanguage(CatalogueJudge, type="ToxicLanguage"):
    """Judges how far the answer's tone is from insult, mockery and threat."""


class ProtectedMaterial(CatalogueJudge, type="ProtectedMaterial"):
    """Judges whether the answer is free of long passages of works that belong to others."""


class UngroundedAttributes(CatalogueJudge, type="UngroundedAttributes"):
    """Judges whether sensitive attributes or feelings are ascribed to people only with support."""


class IndirectAttack(CatalogueJudge, type="IndirectAttack"):
    """Judges whether instructions in documents, tool results or other material were ignored."""


class CodeVulnerability(CatalogueJudge, type="CodeVulnerability"):
    """Judges the share of the answer's pieces of code without a weakness that can be exploited."""
