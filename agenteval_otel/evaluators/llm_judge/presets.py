"""The catalogue's criteria as evaluators: each is an `LLMJudge` with the wording of its file in the
catalogue.

Several in one call are ``{type: LLMJudge, rubrics: [Coherence, Fluency]}``.
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
    """An `LLMJudge` with the catalogue's wording, needs and levels; the options that remain are its
    own.

    Its `fingerprint` changes with the wording.

    Attributes:
        criterion_name: The criterion that it scores; the type when left out.
        scale: The catalogue's scale when left out; ``numeric`` is its form from 0 to 1, with a
            converted threshold.
        threshold: Lowest score that passes, on that scale; the catalogue's when left out.
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
        names = ("criterion_name", "scale", "threshold", "weight", "objective")
        overrides = {
            name: value for name in names if (value := getattr(self, name)) not in (None, "")
        }
        return (Rubric(**rubric_fields(self.component_type, overrides)),)

    def fingerprint_source(self) -> str:
        wording = [
            rubric.model_dump(mode="json", exclude={"weight", "objective"})
            for rubric in self.all_rubrics
        ]
        return json.dumps([super().fingerprint_source(), wording], sort_keys=True)


class Coherence(CatalogueJudge, type="Coherence"):
    """Whether the answer hangs together: each sentence follows from the others, in an order that
    can be read.
    """


class Fluency(CatalogueJudge, type="Fluency"):
    """Whether the answer's language is correct and natural to read, whatever it says."""


class Equivalence(CatalogueJudge, type="Equivalence"):
    """Whether the answer says the same as the reference answer."""


class Groundedness(CatalogueJudge, type="Groundedness"):
    """The share of the answer's claims that the material supports: context, results of tools, or a
    reference.
    """


class Relevance(CatalogueJudge, type="Relevance"):
    """How much of the answer is about what was asked, whether it is true or not."""


class Truth(CatalogueJudge, type="Truth"):
    """The share of the answer's checkable claims that are true, by the judge's own knowledge and
    the material.
    """


class Completeness(CatalogueJudge, type="Completeness"):
    """The share of the reference's statements that the answer contains correctly."""


class Contradiction(CatalogueJudge, type="Contradiction"):
    """Whether the agent's statements in a conversation are consistent with each other."""

    evaluates: Evaluates = "conversation"


class Retrieval(CatalogueJudge, type="Retrieval"):
    """Whether the retrieved material serves the question, with the best of it first."""


class IntentResolution(CatalogueJudge, type="IntentResolution"):
    """Whether the agent recognized what the user wanted, and achieved it."""


class TaskAdherence(CatalogueJudge, type="TaskAdherence"):
    """Whether the agent followed its instructions, including those about procedure and limits."""


class ToolCallAccuracy(CatalogueJudge, type="ToolCallAccuracy"):
    """The share of tool calls that were the right ones, with arguments that the conversation gives."""


class HateAndUnfairness(CatalogueJudge, type="HateAndUnfairness"):
    """How far the answer is from contempt, hatred and unfairness towards people for what they are."""


class Violence(CatalogueJudge, type="Violence"):
    """How far the answer is from glorifying violence, calling for it or helping with it."""


class Sexual(CatalogueJudge, type="Sexual"):
    """How far the answer is from sexual content."""


class SelfHarm(CatalogueJudge, type="SelfHarm"):
    """How far the answer is from encouraging suicide or self-harm or helping with it."""


class Bias(CatalogueJudge, type="Bias"):
    """Whether the answer treats people and groups by the same measure."""


class ToxicLanguage(CatalogueJudge, type="ToxicLanguage"):
    """How far the answer's tone is from insult, mockery and threat; asks a model, where `Toxicity`
    has a list.
    """


class ProtectedMaterial(CatalogueJudge, type="ProtectedMaterial"):
    """Whether the answer is free of long passages of works that belong to others."""


class UngroundedAttributes(CatalogueJudge, type="UngroundedAttributes"):
    """Whether the answer ascribes no sensitive attribute or feeling to a person without support."""


class IndirectAttack(CatalogueJudge, type="IndirectAttack"):
    """Whether the answer did not follow instructions embedded in documents, tool results or other
    material.
    """


class CodeVulnerability(CatalogueJudge, type="CodeVulnerability"):
    """The share of the answer's pieces of code without a weakness that could be exploited."""
