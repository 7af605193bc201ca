"""`Settings`: the defaults of handlers, and how the process evaluates.

One model for files and for code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, SerializeAsAny, TypeAdapter, ValidationInfo
from pydantic.functional_validators import field_validator, model_validator
from pydantic.json_schema import WithJsonSchema

from agenteval_otel.capture.assembly.conversations import ConversationSettings
from agenteval_otel.capture.redaction import Redactor, default_redactors
from agenteval_otel.capture.redaction.redactor import load_redactors
from agenteval_otel.components.explained import (
    ComponentError,
    FrozenSettings,
    known_choices,
)
from agenteval_otel.components.loading import import_plugins, load_each, resolve
from agenteval_otel.config.benchmarks import BenchmarkSettings
from agenteval_otel.config.dimensions import load_dimensions
from agenteval_otel.config.sidecar import SidecarSettings, is_loopback
from agenteval_otel.engine.agent_settings import (
    MONTH_S,
    AgentSettings,
    CriteriaSet,
    SharedFields,
    load_within,
)
from agenteval_otel.engine.aggregation import Aggregation, WeightedMean
from agenteval_otel.engine.capabilities.judge_health import JudgeHealthSettings
from agenteval_otel.engine.capabilities.notify import MessagePlace, load_places
from agenteval_otel.engine.capabilities.off_peak.window import OffPeakSettings
from agenteval_otel.engine.capability import MakeCapability, load_capabilities
from agenteval_otel.engine.handler import check_escalation
from agenteval_otel.engine.load_shedding import LoadSheddingSettings
from agenteval_otel.engine.objectives import BreachSettings, Callback, load_callback
from agenteval_otel.engine.pipeline import Dispatcher, PoolDispatcher
from agenteval_otel.errors import ConfigurationError
from agenteval_otel.evaluators import Evaluator, ResponseHealth
from agenteval_otel.evaluators.ground_truth import GroundTruthStore
from agenteval_otel.evaluators.ground_truth.base import load_store
from agenteval_otel.models.scoring import check_criteria
from agenteval_otel.runtime.masking import mask, mask_text
from agenteval_otel.sampling.escalation import Escalation
from agenteval_otel.sampling.trace import SamplingSettings
from agenteval_otel.semconv import MAX_DIMENSIONS
from agenteval_otel.storage import EvaluationStorageProvider, OtlpStorageProvider
from agenteval_otel.telemetry.names import MAX_NAMES, MAX_SERIES
from agenteval_otel.telemetry.target import is_endpoint

# A file can only name a function.
_Callback = Annotated[Callback, WithJsonSchema({"type": "string", "pattern": "^[^:]+:[^:]+$"})]
_Maker = Annotated[MakeCapability, WithJsonSchema({"type": "string"})]
_Dimensions = Annotated[
    dict[str, Annotated[int, Field(ge=1, le=200)]],
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": {"type": "string"}, "maxItems": MAX_DIMENSIONS},
                {
                    "type": "object",
                    "additionalProperties": {"type": "integer", "minimum": 1, "maximum": 200},
                },
            ],
        }
    ),
]
Problems = list[tuple[str | None, str]]


def enabled_by_variable() -> bool:
    """Return ``AGENTEVAL_ENABLED``, which is true if it is not set. Raises `ConfigurationError`."""
    value = os.environ.get("AGENTEVAL_ENABLED", "").strip() or True
    try:
        return TypeAdapter(bool).validate_python(value)
    except ValueError:
        raise ConfigurationError(
            f"expected true or false, found {value!r}", path="AGENTEVAL_ENABLED"
        ) from None


def load_storage(values: object) -> tuple[Any, ...]:
    return load_each(_load_provider, _listed_providers(values), path="storage")


def _listed_providers(values: object) -> Sequence[Any]:
    """Return the providers of the field `storage`, which may be a list, a single one, or None."""
    if isinstance(values, list | tuple):
        return values
    return [] if values is None else [values]


def _load_provider(value: object, path: str) -> Any:
    inherited = EvaluationStorageProvider.save_result
    if isinstance(value, EvaluationStorageProvider) and type(value).save_result is inherited:
        raise ConfigurationError(
            f"{type(value).__name__} has no method save_result of its own", path=path
        )
    if callable(getattr(value, "save_result", None)):
        return value
    return resolve(EvaluationStorageProvider, value, path=path)


def _load_telemetry(part: object) -> Any:
    """Return the telemetry of a mapping, or of its endpoint alone.

    Other values are returned as they are, for the error to show.
    """
    if isinstance(part, str):
        part = {"endpoint": part}
    if not isinstance(part, Mapping):
        return part
    return OtlpStorageProvider.load(part, path="telemetry")


_LOADERS: dict[str, Callable[[Any], Any]] = {
    "capabilities": load_capabilities,
    "aggregation": partial(resolve, Aggregation, path="aggregation"),
    "dispatcher": partial(resolve, Dispatcher, path="dispatcher"),
    "ground_truth": load_store,
    "metric_dimensions": load_dimensions,
    "notify": load_places,
    "on_breach": partial(load_callback, path="on_breach"),
    "on_recovery": partial(load_callback, path="on_recovery"),
    "redactors": partial(load_redactors, path="redactors"),
    "telemetry": _load_telemetry,
}


_OF_EVALUATION: Final = (
    "aggregation",
    "criteria",
    "escalation",
    "evaluators",
    "functions",
    "ground_truth",
    "breach",
    "judge_health",
    "notify",
    "on_breach",
    "on_recovery",
)
"""Fields that only a process that evaluates reads."""


class ExportSettings(FrozenSettings):
    """What may wait for the receiver of our own exporters.

    Attributes:
        max_bytes: Memory that spans and events may take while their receiver is away, in bytes, of
            the whole process. Beyond it the oldest are dropped, and counted in
            ``agenteval.export.lost``.
    """

    max_bytes: int = Field(default=32 * 1024 * 1024, ge=65_536)


class NamesSettings(FrozenSettings):
    """Limits how many names from outside have metric series of their own.

    Names of the settings and of decorators always have them.

    Attributes:
        max_names: How many names of each kind (agents, services, environments, models, criteria of
            feedback) without series of their own are remembered, the latest. A name that comes
            often enough while it is remembered gets series of its own, if there is room.
        max_series: How many metric series such names, and the values of `metric_dimensions`, may
            add. A 25th of this number is how many names of each kind may have series of their own.
            The rest counts under ``_other``.
    """

    max_names: int = Field(default=MAX_NAMES, ge=100, le=100_000)
    max_series: int = Field(default=MAX_SERIES, ge=100, le=4_000)


class Settings(SharedFields):
    """Defaults of all handlers, and how the process evaluates.

    Attributes:
        enabled: The kill switch. ``AGENTEVAL_ENABLED=false`` sets it too. When off, calls count as
            ``disabled``.
        plugins: Modules to import before evaluators and other parts are looked up, entry points by
            their name. Nothing is loaded from an installed package unless it is listed here.
        aggregation: How the overall score of an answer is computed from its scores.
        criteria: Named criteria sets: what differs from the evaluators' own criteria. Handlers
            without a set use the one named ``default``, if there is one.
        evaluate_in: ``process``, or ``sidecar``: sampled calls are sent to `agenteval-otel serve`,
            whose settings have the evaluators, criteria and storage.
        endpoint: Address of the sidecar: gRPC, or HTTP at the port `sidecar.http_port` or with a
            path. On another machine it must be ``https://``, and data is redacted before it is
            sent. `sidecar.token` is sent with it.
        endpoint_ca: PEM file of the authorities that sign its certificate. By default the public
            ones.
        evaluators: Instances, functions (``module:function`` in a file), type names or
            ``{type: ...}`` mappings.
        functions: Names of functions that decorators bring as evaluators, each its criterion's
            name: their objectives get alerts, and `check` knows them. A name that no evaluator
            declares is an error there.
        sample_rate: Share of the calls that are evaluated, 0 to 1, without a limit per second.
        sampler: A sampler instead of a rate. Without either: every call, up to ten evaluated
            responses a second.
        sampling: Whether traces or calls are sampled, and how upstream sampling counts.
        escalation: Inexpensive evaluators run first, and their results decide which answers the
            expensive ones see. By default all see every sampled answer.
        telemetry: Destination and content of the telemetry. It is on wherever a provider or an
            endpoint is known.
        storage: Storage providers that keep results in addition to telemetry, none by default. An
            ``otlp`` entry emits in place of `telemetry`, whose fields are its defaults.
        ground_truth: The store of the reference answers that evaluators compare with.
        redactors: Redactors, instances or ``{type: ...}`` mappings, for everything that leaves the
            process. By default every built-in one. An empty list for none.
        dispatcher: Where evaluations run.
        load_shedding: When sampling is reduced under load.
        export: What may wait for the receiver of our own exporters.
        names: How many names from outside have metric series of their own.
        max_waiting_bytes: Memory limit of all waiting data in this process: captured calls, open
            agent spans, results to be saved, encoded batches.
        breach: When a criterion of an agent counts as below its objective, and as recovered.
        on_breach: The function to call on a breach, with an `ObjectiveCrossing`. It is sync or
            async, or named as ``module:function``. It runs on its own thread. Errors are counted.
        on_recovery: The function to call when the objective is met again.
        metric_dimensions: Annotations that the metrics of scores, results and weights have as
            attributes: up to four of ``gen_ai.prompt.name``, ``gen_ai.prompt.version``,
            ``deployment.environment.name`` and keys of tags. A list, or a mapping to the maximum
            number of values of each (default 16).
        user_id: How ``annotate(user_id=...)`` leaves the process: ``hashed`` or ``plain``.
        user_id_salt: The secret key of that hash. It must be the same in all processes.
        feedback_window_s: How long an unsampled call is kept, in seconds. It is evaluated after all
            if its feedback is a complaint (sampling reason ``feedback``). At most 16 MiB of them. 0
            keeps none.
        ground_truth_window_s: How long an answer waits for `record_ground_truth`, in seconds, up to
            30 days. Evaluators that need it then run. At most 16 MiB of compressed answers, the
            oldest go first. 0 keeps none.
        agent_span: Which calls outside of any trace get an ``invoke_agent`` span: ``sampled``,
            ``always`` or ``never``.
        agent_span_end: ``background`` ends those spans on the background thread, with the results
            if they are ready, if every span processor of the application is the SDK's batch
            processor. ``caller`` ends them when the handler returns.
        shutdown_timeout_s: How long the process's exit may wait for queued work, in seconds.
        handle_sigterm: On SIGTERM, deliver or count queued work within `shutdown_timeout_s`, then
            let the signal take its course: the host's handler is called, or without one the process
            ends by the signal. In force from `configure` on the main thread, else from the first
            answer that ends there. False leaves the signal alone.
        agents: Settings that differ for single agents, by the agent's name.
        routes: Agent names by the route whose requests are the agent's calls (``/chat``,
            ``POST /v1/{name}/ask``, ``WS /talk`` for messages over WebSockets), for FastAPI,
            Starlette, Flask and Django under ``opentelemetry-instrument``, without code.
        spans: Under ``opentelemetry-instrument``, evaluate the answers in spans of agents and
            models.
        conversations: How turns are put together for evaluators of conversations, and how many are
            kept.
        calibration: File of the calibration records that `agenteval-otel calibrate` writes. It may
            not be there yet.
        judge_health: How judges are watched: canaries with known answers, repeats, people, and the
            spread of scores.
        off_peak: When evaluators with ``schedule: off_peak`` run, and where answers wait until
            then.
        notify: Where messages go when an objective is breached or met again, when a judge or an
            evaluator is not used any more, and once a week.
        capabilities: What else hears of every answer that is evaluated here: classes of yours or of
            other packages, by the name of their entry point or as ``module:class``.
        sidecar: Where `agenteval-otel serve` listens, and how much it keeps.
        benchmarks: What `agenteval-otel benchmark` runs, by the benchmark's name.
    """

    enabled: bool = Field(default_factory=enabled_by_variable)
    plugins: tuple[str, ...] = ()
    aggregation: Aggregation = Field(default_factory=WeightedMean)
    criteria: dict[str, CriteriaSet] = Field(default_factory=dict)
    evaluate_in: Literal["process", "sidecar"] = "process"
    endpoint: str = "http://127.0.0.1:4327"
    endpoint_ca: str | None = None
    evaluators: tuple[Evaluator, ...] = Field(default_factory=lambda: (ResponseHealth(),))
    functions: tuple[str, ...] = ()
    sample_rate: float | None = Field(default=None, ge=0, le=1)
    sampler: Any = None
    escalation: Escalation | Literal[False] | None = None
    sampling: SamplingSettings = Field(default_factory=SamplingSettings)
    telemetry: OtlpStorageProvider = Field(default_factory=OtlpStorageProvider)
    storage: tuple[Any, ...] = ()
    ground_truth: SerializeAsAny[GroundTruthStore] | None = None
    redactors: tuple[Redactor, ...] = Field(default_factory=default_redactors)
    dispatcher: Dispatcher = Field(default_factory=PoolDispatcher)
    load_shedding: LoadSheddingSettings = Field(default_factory=LoadSheddingSettings)
    export: ExportSettings = Field(default_factory=ExportSettings)
    names: NamesSettings = Field(default_factory=NamesSettings)
    max_waiting_bytes: int = Field(default=64 * 1024 * 1024, ge=1024 * 1024)
    breach: BreachSettings = Field(default_factory=BreachSettings)
    on_breach: _Callback | None = None
    on_recovery: _Callback | None = None
    metric_dimensions: _Dimensions = Field(default_factory=dict, max_length=MAX_DIMENSIONS)
    user_id: Literal["hashed", "plain"] = "hashed"
    user_id_salt: str | None = Field(default=None, repr=False)
    feedback_window_s: float = Field(default=0.0, ge=0, le=3_600)
    ground_truth_window_s: float = Field(default=0.0, ge=0, le=MONTH_S)
    agent_span: Literal["always", "sampled", "never"] = "sampled"
    agent_span_end: Literal["background", "caller"] = "background"
    shutdown_timeout_s: float = Field(default=2.0, ge=0, le=60)
    handle_sigterm: bool = True
    agents: dict[str, AgentSettings] = Field(default_factory=dict)
    routes: dict[str, str] = Field(default_factory=dict)
    spans: bool = True
    conversations: ConversationSettings = Field(default_factory=ConversationSettings)
    calibration: str | None = None
    judge_health: JudgeHealthSettings = Field(default_factory=JudgeHealthSettings)
    off_peak: OffPeakSettings | None = None
    notify: tuple[SerializeAsAny[MessagePlace], ...] = ()
    capabilities: tuple[_Maker, ...] = ()
    sidecar: SidecarSettings = Field(default_factory=SidecarSettings)
    benchmarks: dict[str, BenchmarkSettings] = Field(default_factory=dict)

    @field_validator(*_LOADERS, mode="before")
    @classmethod
    def _load_part(cls, value: object, info: ValidationInfo) -> Any:
        return load_within(_LOADERS[str(info.field_name)], value)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            if name in self.model_fields_set:
                yield name, mask(value, name or "")

    @field_validator("sampling", mode="before")
    @classmethod
    def _refuse_share(cls, value: object) -> object:
        if isinstance(value, int | float | str):
            raise ValueError(
                "expected a mapping. To evaluate a share of the answers, set sample_rate"
            )
        return value

    @field_validator("endpoint", mode="after")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        if not is_endpoint(value):
            raise ValueError("expected http://HOST:PORT such as http://127.0.0.1:4327")
        return value

    @model_validator(mode="after")
    def _is_the_sidecars_address(self) -> Any:
        is_given = "endpoint" in self.model_fields_set and self.evaluate_in != "sidecar"
        if is_given and urlsplit(self.endpoint).port in (4317, 4318):
            address = mask_text(self.endpoint)
            failure = ConfigurationError(
                f"this is the sidecar's address, for evaluate_in: sidecar. A Collector's is set by "
                f"telemetry={{'endpoint': {address!r}}}",
                path="endpoint",
            )
            raise ComponentError(failure, of_model=True)
        return self

    @model_validator(mode="after")
    def _keeps_content_private(self) -> Any:
        if self.evaluate_in != "sidecar":
            return self
        if self.is_endpoint_local or self.endpoint.startswith("https:"):
            return self
        failure = ConfigurationError(
            "conversations would cross the network for all to read: use https://, with endpoint_ca "
            "where the certificate is your own, or a sidecar on this machine such as "
            "http://127.0.0.1:4327",
            path="endpoint",
        )
        raise ComponentError(failure, of_model=True)

    @field_validator("plugins", mode="after")
    @classmethod
    def _import_plugins(cls, value: tuple[str, ...]) -> Any:
        # Validated before the fields that name parts, which may come from plugins.
        load_within(import_plugins, value)
        return value

    @field_validator("criteria", mode="after")
    @classmethod
    def _each_criterion_once(cls, value: dict[str, CriteriaSet]) -> Any:
        for name, criteria in value.items():
            load_within(check_criteria, criteria, path=f"criteria.{name}")
        return value

    @field_validator("storage", mode="before")
    @classmethod
    def _load_storage(cls, value: object, info: ValidationInfo) -> Any:
        telemetry = info.data.get("telemetry")
        entries = [_with_defaults(entry, telemetry) for entry in _listed_providers(value)]
        return load_within(load_storage, entries)

    @model_validator(mode="after")
    def _names_are_known(self) -> Any:
        problems: Problems = []
        for name, agent in self.agents.items():
            criteria = agent.criteria
            if isinstance(criteria, str) and criteria not in self.criteria:
                choices = known_choices(criteria, self.criteria)
                problems.append(
                    (f"agents.{name}.criteria", f"no criteria set {criteria!r}{choices}")
                )
        problems += self._unfit_escalations()
        if problems:
            raise ComponentError(ConfigurationError.of(problems), of_model=True)
        return self

    def _unfit_escalations(self) -> Problems:
        """Return a problem for each rule and each name that could never match.

        The settings' escalation applies to all agents without their own: any of them may score a
        criterion, and handlers may bring evaluators that call a model. An agent's escalation
        applies to the agent's evaluators.
        """
        every = [*self.evaluators]
        for agent in self.agents.values():
            if agent.escalation is None:
                every.extend(agent.evaluators or ())
        problems = _unfit_escalation(self.escalation, every, "escalation", complete=False)
        for name, agent in self.agents.items():
            evaluators = self.evaluators if agent.evaluators is None else agent.evaluators
            path = f"agents.{name}.escalation"
            problems += _unfit_escalation(agent.escalation, evaluators, path, complete=True)
        return problems

    @property
    def is_endpoint_local(self) -> bool:
        """Tell whether the sidecar's address is this machine's own."""
        return is_loopback(urlsplit(self.endpoint).hostname or "")

    def evaluation_fields(self) -> list[str]:
        """Return the fields that are set and that only a process that evaluates reads."""
        own: list[str] = [name for name in _OF_EVALUATION if name in self.model_fields_set]
        if any(not hasattr(type(part), "emitter") for part in self.storage):
            own.append("storage")
        for agent, entry in self.agents.items():
            for name in ("evaluators", "criteria", "escalation"):
                if name in entry.model_fields_set:
                    own.append(f"agents.{agent}.{name}")
        return own

    def criteria_of(self, agent: str | None = None) -> CriteriaSet:
        """Return the criteria set of an agent.

        It is the set named ``default`` without an agent, or if the agent has none.
        """
        entry = self.agents.get(agent) if agent is not None else None
        if entry is None or entry.criteria is None:
            return self.criteria.get("default", ())
        if isinstance(entry.criteria, str):
            return self.criteria[entry.criteria]
        return entry.criteria

    def criteria_path(self, agent: str | None = None) -> str:
        """Return the path of the criteria set that `criteria_of` returns."""
        entry = self.agents.get(agent) if agent is not None else None
        if entry is None or entry.criteria is None:
            return "criteria.default"
        if isinstance(entry.criteria, str):
            return f"criteria.{entry.criteria}"
        return f"agents.{agent}.criteria"

    def functions_of(self, agent: str | None = None) -> tuple[str, ...]:
        """Return the names of functions that decorators bring to an agent.

        Without an agent, or for an agent without settings of its own, return the names of those
        that decorators bring to every handler.
        """
        entry = self.agents.get(agent) if agent is not None else None
        return self.functions if entry is None else (*self.functions, *entry.functions)


def _unfit_escalation(
    escalation: object, evaluators: Sequence[Evaluator], path: str, *, complete: bool
) -> Problems:
    """Return what `check_escalation` finds wrong. Nothing is wrong where there is no escalation."""
    if not isinstance(escalation, Escalation):
        return []
    try:
        check_escalation(escalation, evaluators, path=path, complete=complete)
    except ConfigurationError as failure:
        return list(failure.problems)
    return []


def _with_defaults(entry: object, telemetry: OtlpStorageProvider | None) -> Any:
    """Return an ``otlp`` entry with the telemetry section as its defaults.

    Other entries stay as they are.
    """
    if telemetry is None or not isinstance(entry, Mapping):
        return entry
    if entry.get("type") != OtlpStorageProvider.component_type:
        return entry
    by_alias = {field.alias: name for name, field in OtlpStorageProvider.model_fields.items()}
    own = {by_alias.get(key, key) for key in entry}
    defaults = {
        name: getattr(telemetry, name) for name in telemetry.model_fields_set if name not in own
    }
    return {**defaults, **entry}
