"""`EvaluationRunConfig`: the evaluators and settings of a run.

They are checked as a whole before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    SerializationInfo,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel

from agenteval_otel.capture.redaction import Redactor, default_redactors
from agenteval_otel.capture.redaction.redactor import load_redactors
from agenteval_otel.components import Component
from agenteval_otel.components.explained import FriendlyErrors, explain_validation, known_choices
from agenteval_otel.components.loading import import_plugins, resolve
from agenteval_otel.engine.aggregation import Aggregation, WeightedMean
from agenteval_otel.engine.handler import StorageLike, check_escalation
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator
from agenteval_otel.evaluators.base import Execution
from agenteval_otel.evaluators.compat import load_entries, load_evaluators
from agenteval_otel.evaluators.func import EvaluatorLike
from agenteval_otel.evaluators.ground_truth import GroundTruthStore
from agenteval_otel.evaluators.ground_truth.base import load_store
from agenteval_otel.models import EvaluationCriteria, EvaluationInput
from agenteval_otel.models.scoring import check_criteria
from agenteval_otel.models.value import snapshot_of
from agenteval_otel.runtime.masking import mask
from agenteval_otel.sampling import Escalation
from agenteval_otel.storage import EvaluationStorageProvider


class RunModel(BaseModel, metaclass=FriendlyErrors):
    """Knows its fields in snake_case and camelCase, and is frozen.

    Errors name the path of the wrong field.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        loc_by_alias=False,
        hide_input_in_errors=True,
        ignored_types=(cached_property,),
    )

    @classmethod
    def model_validate(cls, obj: object, **options: Any) -> Self:
        try:
            return super().model_validate(obj, **options)
        except ValidationError as error:
            raise explain_validation(error, cls) from None

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        try:
            return super().model_validate_json(json_data, **options)
        except ValidationError as error:
            raise explain_validation(error, cls) from None

    @field_validator("redactors", mode="before", check_fields=False)
    @classmethod
    def _load_redactors(cls, value: object) -> Any:
        return load_redactors(value, path="redactors")


InputLike: TypeAlias = EvaluationInput | Mapping[str, Any]
"""An input, or a mapping of its fields."""


def as_input(value: object, *, path: str = "evaluation_input") -> EvaluationInput:
    """Return the input itself, or build it from a mapping.

    Raises `ConfigurationError` with the path of what is wrong.
    """
    if isinstance(value, EvaluationInput):
        return value
    if not isinstance(value, Mapping):
        wrong = (
            f"expected an EvaluationInput or a mapping of its fields, found {type(value).__name__}"
        )
        raise ConfigurationError(wrong, path=path)
    try:
        return EvaluationInput.model_validate(value)
    except ValidationError as error:
        raise explain_validation(error, EvaluationInput, path=path) from None


class EvaluatorSelection(NamedTuple):
    """Holds the evaluators that run, in configured order.

    `left_out` has the labels of those that do not run, with the reason.
    """

    evaluators: tuple[Evaluator, ...]
    left_out: tuple[str, ...]


class EvaluationRunConfig(RunModel):
    """Holds what to run. An instance is checked, and can be run.

    Attributes:
        plugins: Modules that are imported before types are looked up, entry points by their name.
        evaluators: Instances, functions or ``{type: ..., field: ...}`` mappings.
        evaluator_configs: AgentDock's form, instead of `evaluators`: ``{type, config}``, or
            ``{type, rules}``.
        criteria: Used when the input names none. Without any, each evaluator uses its own.
        aggregation: Computes the overall score: an `Aggregation`, its type's name or a mapping.
        execution: Evaluators with one of these executions only. All when empty.
        tags: Evaluators with at least one of these tags only. All when empty.
        storage: Saves the result: a storage provider, its type's name, a mapping, or anything with
            ``async save_result(aggregated)``. In JSON ``storageProvider``.
        ground_truth: A store that gives inputs without a ground truth theirs. An instance or a
            mapping.
        metadata: Copied into the result's metadata.
        escalation: Decides from the other evaluators' results which inputs the expensive ones see.
            All by default.
        redactors: Applied to the inputs of evaluators that call a model and to stored results.
            Instances or ``{type: ...}`` mappings, an empty list for none. The returned result is
            not redacted.

    Raises:
        ConfigurationError: With the path of the wrong field.
    """

    plugins: tuple[str, ...] = ()
    evaluators: tuple[SerializeAsAny[Evaluator], ...] = ()
    evaluator_configs: list[Any] | None = Field(default=None, repr=False)
    criteria: tuple[EvaluationCriteria, ...] = ()
    aggregation: SerializeAsAny[Aggregation] = Field(default_factory=WeightedMean)
    execution: tuple[Execution, ...] = ()
    tags: tuple[str, ...] = ()
    storage: Any = Field(
        default=None,
        validation_alias=AliasChoices("storageProvider", "storage_provider"),
        serialization_alias="storageProvider",
    )
    ground_truth: SerializeAsAny[GroundTruthStore] | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    escalation: Escalation | None = None
    redactors: tuple[SerializeAsAny[Redactor], ...] = Field(default_factory=default_redactors)

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            plugins: Sequence[str] = (),
            evaluators: Sequence[EvaluatorLike] = (),
            evaluator_configs: Sequence[Mapping[str, Any]] | None = None,
            criteria: Sequence[EvaluationCriteria] = (),
            aggregation: Aggregation | str | Mapping[str, Any] = ...,
            execution: Sequence[Execution] = (),
            tags: Sequence[str] = (),
            storage: StorageLike | None = None,
            ground_truth: GroundTruthStore | Mapping[str, Any] | None = None,
            metadata: Mapping[str, Any] = ...,
            escalation: Escalation | Mapping[str, Any] | None = None,
            redactors: Sequence[Redactor | str | Mapping[str, Any]] = ...,
        ) -> None: ...

    @field_validator("ground_truth", "aggregation", "storage", mode="before")
    @classmethod
    def _load_part(cls, value: object, info: ValidationInfo) -> Any:
        if info.field_name == "ground_truth":
            return load_store(value)
        if info.field_name == "aggregation":
            return resolve(Aggregation, value, path="aggregation")
        if value is None or callable(getattr(value, "save_result", None)):
            return value
        return resolve(EvaluationStorageProvider, value, path="storage")

    @model_validator(mode="before")
    @classmethod
    def _load_parts(cls, data: object) -> Any:
        if not isinstance(data, Mapping):
            return data
        fields = {
            "evaluator_configs" if key == "evaluatorConfigs" else key: value
            for key, value in data.items()
            if value is not None  # null in JSON means that the field is not set
        }
        plugins = fields.get("plugins", ())
        if isinstance(plugins, list | tuple) and all(isinstance(name, str) for name in plugins):
            import_plugins(plugins)
        if fields.get("evaluator_configs") is None:
            fields["evaluators"] = load_evaluators(fields.get("evaluators", ()))
            _check_fields(fields.get("criteria"))
            return fields
        if fields.get("evaluators"):
            raise ConfigurationError(
                "give evaluators or evaluatorConfigs, not both", path="evaluators"
            )
        entries = fields["evaluator_configs"]
        fields["evaluators"] = load_entries(entries)
        fields["evaluator_configs"] = snapshot_of(list(entries))
        return fields

    @model_validator(mode="after")
    def _can_run(self) -> Self:
        if self.is_strict:
            check_criteria(self.criteria, path="criteria")
        if self.escalation is not None:
            check_escalation(self.escalation, self.evaluators)
        _ = self.selection  # raises now if nothing is left to run
        return self

    @property
    def is_strict(self) -> bool:
        """Tell whether criteria are checked. AgentDock's form takes them as they are."""
        return self.evaluator_configs is None

    @cached_property
    def selection(self) -> EvaluatorSelection:
        """Return the evaluators of one of the executions that have at least one of the tags.

        An empty list takes all.
        """
        tags_of_evaluators: set[str] = set()
        for evaluator in self.evaluators:
            tags_of_evaluators.update(evaluator.tags)
        known = sorted(tags_of_evaluators)
        for index, tag in enumerate(self.tags):
            if tag not in known:
                wrong = f"no evaluator has the tag {tag!r}{known_choices(tag, known)}"
                raise ConfigurationError(wrong, path=f"tags[{index}]")
        chosen: list[Evaluator] = []
        left_out: list[str] = []
        for evaluator in self.evaluators:
            if self.execution and evaluator.resolved_execution not in self.execution:
                left_out.append(f"{evaluator.label} (execution {evaluator.resolved_execution})")
            elif self.tags and not set(self.tags) & set(evaluator.tags):
                left_out.append(f"{evaluator.label} (tags {', '.join(evaluator.tags) or 'none'})")
            else:
                chosen.append(evaluator)
        if not chosen:
            wrong = f"no evaluator is left to run: {', '.join(left_out)}"
            raise ConfigurationError(wrong, path="execution" if self.execution else "tags")
        return EvaluatorSelection(tuple(chosen), tuple(left_out))

    def check_input(self, evaluation_input: EvaluationInput) -> None:
        """Raise ConfigurationError for an input with invalid criteria.

        Raises nothing in AgentDock's form.
        """
        if self.is_strict and evaluation_input.criteria:
            check_criteria(evaluation_input.criteria, path="criteria")

    @field_serializer("storage")
    def _dump_storage(self, value: Any) -> Any:
        return value if isinstance(value, Component) else None  # other objects cannot be dumped

    @model_serializer(mode="wrap")
    def _as_loaded(
        self, dump: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        fields: dict[str, Any] = dump(self)
        field_names = set(type(self).model_fields) - {"evaluator_configs"}
        if self.evaluator_configs is not None:  # AgentDock does not know our fields
            field_names = self.model_fields_set - {"evaluators"}
        names = field_names
        if info.by_alias:
            known = type(self).model_fields
            names = {known[name].serialization_alias or name for name in field_names}
        kept = {name: value for name, value in fields.items() if name in names}
        shows_secrets = (info.context or {}).get("secrets")
        return kept if shows_secrets else mask(kept)


def _check_fields(criteria: object) -> None:
    """Refuse unknown fields, which values otherwise ignore: in a configuration they are typos."""
    known = {name: field.alias or name for name, field in EvaluationCriteria.model_fields.items()}
    if not isinstance(criteria, list | tuple):
        return
    for index, entry in enumerate(criteria):
        if not isinstance(entry, Mapping):
            continue
        for name in entry:
            if name not in known and name not in known.values():
                raise ConfigurationError(
                    f"unknown field{known_choices(name, known)}", path=f"criteria[{index}].{name}"
                )
