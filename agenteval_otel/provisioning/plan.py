"""The criteria and judges of a pipeline, as rules, dashboards and Collectors need them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from agenteval_otel.config.capabilities import breach_of
from agenteval_otel.engine.handler import changed_criteria, judges_of
from agenteval_otel.engine.objectives import BreachSettings
from agenteval_otel.engine.pipeline import Pipeline
from agenteval_otel.engine.run import EvaluationRunner
from agenteval_otel.evaluators import Evaluator, Func
from agenteval_otel.evaluators.shadow import declared_criteria
from agenteval_otel.models import EvaluationCriteria
from agenteval_otel.models.scoring import normalize
from agenteval_otel.models.scoring.scales import BOOLEAN_SCALES
from agenteval_otel.models.value import Value
from agenteval_otel.offline.calibration.record import CalibrationRecord, CalibrationRecords
from agenteval_otel.provisioning.pages import PAGES
from agenteval_otel.semconv import ENVIRONMENT, SHADOW

_EVERY_OTHER = ""
_LEAST_OBJECTIVE = 1e-9


class PlannedCriterion(Value):
    """A criterion as it is scored for some agents.

    Attributes:
        agents: The agents whose answers are scored so. Empty for every agent but `other_agents`.
        other_agents: The agents that have something else, where `agents` is empty.
        calls_model: Whether an evaluator of it asks a judge.
        calibration: How its judge agrees with people, where that was measured on the judge as it
            is.
    """

    criterion: EvaluationCriteria
    agents: tuple[str, ...] = ()
    other_agents: tuple[str, ...] = ()
    calls_model: bool = False
    calibration: CalibrationRecord | None = None

    @property
    def name(self) -> str:
        return self.criterion.name

    @property
    def objective(self) -> float | None:
        """Return the share of results that should pass, 0 to 1, or None."""
        return self.criterion.objective

    @property
    def of_last(self) -> int | None:
        """Return the number of verdicts in which the objective counts, chance or not.

        The result is None if evidence decides.
        """
        return self.criterion.of_last

    @property
    def threshold(self) -> float | None:
        """Return the normalized score from which on a result passes, 0 to 1.

        The result is None without a threshold, or if the scale has no place.
        """
        threshold = self.criterion.threshold
        return None if threshold is None else normalize(threshold, self.criterion)

    @property
    def is_shadow(self) -> bool:
        """Tell whether its evaluator is tried. Then nothing alerts on it."""
        return self.name.endswith(SHADOW)

    @property
    def has_verdicts(self) -> bool:
        """Tell whether its results are ``pass`` or ``fail`` by what it declares.

        Other verdicts may come from evaluators.
        """
        return self.criterion.threshold is not None or self.criterion.scale in BOOLEAN_SCALES

    @property
    def is_alerted(self) -> bool:
        """Tell whether its objective can be missed.

        It can if it is at least a billionth and there are verdicts to compare with it.
        """
        return (self.objective or 0.0) >= _LEAST_OBJECTIVE and self.has_verdicts

    @property
    def cannot_be_missed(self) -> bool:
        """Tell whether its objective is 0, or so small (below a billionth) that it counts as 0."""
        return self.objective is not None and self.objective < _LEAST_OBJECTIVE

    @property
    def alerted_threshold(self) -> float | None:
        """Return the threshold that its mean is compared with.

        The result is None if an objective already says how many may fail, if its evaluator is
        tried, or if the threshold is not between 0 and 1.
        """
        if self.is_alerted or self.is_shadow:
            return None
        threshold = self.threshold
        # A threshold of 0 cannot be missed, and with 1 any failure would pull the mean below it.
        if threshold is not None and 0.0 < threshold < 1.0:
            return threshold
        return None


class MonitoringPlan(Value):
    """Holds all that the generated files are made from.

    They are made from nothing else. Everything in it is in alphabetical order.

    Attributes:
        agents: The agents that the settings name and do not switch off.
        dimensions: Attributes of annotations that metrics have, the environment aside, which all
            series have.
        has_spend_limit: Whether any judge has a limit of what its calls may cost.
        seen_share: The share of an agent's evaluated answers that an evaluator looks at in any
            case, above 0 to 1: less than 1 where all evaluators of an agent have a sampling ratio
            of their own. Of several agents the least.
        breach: When a process detects a breach.
        drain_s: How long the sidecar takes to end.
        time_scale: What every window and waiting time is multiplied with: 1 for production, less
            for a live test.
        pages: Where the pages are opened, unless a command says otherwise.
    """

    criteria: tuple[PlannedCriterion, ...] = ()
    agents: tuple[str, ...] = ()
    judge_models: tuple[str, ...] = ()
    dimensions: tuple[str, ...] = ()
    has_spend_limit: bool = False
    seen_share: float = 1.0
    breach: BreachSettings = BreachSettings()
    drain_s: float = 20.0
    time_scale: float = 1.0
    pages: str = PAGES

    @classmethod
    def of(
        cls,
        pipeline: Pipeline,
        *,
        functions_of: Callable[[str | None], Sequence[str]] = lambda agent: (),
        drain_s: float = 20.0,
        time_scale: float = 1.0,
        calibrations: CalibrationRecords | None = None,
    ) -> MonitoringPlan:
        """Return the plan of a pipeline's handlers.

        They are those of the agents that it names, and every other.

        `functions_of` gives the names of functions that decorators bring to an agent (None: to
        every other handler). A record of `calibrations` counts if it was measured on the evaluator
        as it is, and can correct.
        """
        agents = sorted(name for name, entry in pipeline.handlers.agents.items() if entry.enabled)
        # By criterion: the agents that have it, each with whether a judge scores it there.
        agents_of: dict[EvaluationCriteria, dict[str, bool]] = {}
        evaluators: list[Evaluator] = []
        rates: list[float] = []
        for agent in (_EVERY_OTHER, *agents):
            runner = pipeline.handler(agent).runner
            evaluators += runner.evaluators
            rates.append(_highest_sample_rate(runner.evaluators))
            judged_names = _judged_names(runner.evaluators)
            entry = pipeline.handlers.agents.get(agent)
            if entry is None or entry.criteria is None:
                entry = pipeline.handlers.defaults
            criteria = [*_alertable(runner)]
            criteria += _functions(functions_of(agent or None), entry.criteria_set)
            for criterion in criteria:
                agents_of.setdefault(criterion, {})[agent] = criterion.name in judged_names
        planned = []
        for criterion, users in agents_of.items():
            agents_with: tuple[str, ...] = tuple(users)
            agents_without: tuple[str, ...] = ()
            if _EVERY_OTHER in users:
                agents_with = ()
                agents_without = tuple(agent for agent in agents if agent not in users)
            planned.append(
                PlannedCriterion(
                    criterion=criterion,
                    agents=agents_with,
                    other_agents=agents_without,
                    calls_model=any(users.values()),
                    calibration=_calibration(criterion.name, evaluators, calibrations),
                )
            )
        planned.sort(
            key=lambda planned_criterion: (planned_criterion.name, planned_criterion.agents)
        )
        judges = [judge for _, judge in judges_of(tuple(evaluators))]
        judge_models = {judge.model for judge in judges}
        dimensions = {*(pipeline.handlers.metric_dimensions or ())} - {ENVIRONMENT}
        has_spend_limit = any(judge.spend is not None for judge in judges)
        positive_rates = [rate for rate in rates if rate]
        return cls(
            criteria=tuple(planned),
            agents=tuple(agents),
            judge_models=tuple(sorted(judge_models)),
            dimensions=tuple(sorted(dimensions)),
            has_spend_limit=has_spend_limit,
            seen_share=min(positive_rates, default=1.0),
            breach=breach_of(pipeline),
            drain_s=drain_s,
            time_scale=time_scale,
        )

    @property
    def is_calibrated(self) -> bool:
        """Tell whether the judge of any criterion has a record that corrects."""
        return any(criterion.calibration is not None for criterion in self.criteria)

    @property
    def is_judged(self) -> bool:
        return any(criterion.calls_model for criterion in self.criteria)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all criteria, each once, in alphabetical order."""
        return tuple(dict.fromkeys(criterion.name for criterion in self.criteria))

    @property
    def example(self) -> str:
        """Return the first criterion that alerts look at. The result is empty if there is none."""
        return next((criterion.name for criterion in self.criteria if not criterion.is_shadow), "")

    @property
    def names_with_verdicts(self) -> tuple[str, ...]:
        names = [criterion.name for criterion in self.criteria if criterion.has_verdicts]
        return tuple(dict.fromkeys(names))

    @property
    def paged(self) -> tuple[PlannedCriterion, ...]:
        """Return the criteria whose breach is a page.

        A failure where none is allowed is a ticket, unless `of_last` asks for the page.
        """
        if not self.breach.enabled:
            return ()
        alerted = [item for item in self.criteria if item.is_alerted]
        return tuple(
            item for item in alerted if (item.objective or 0.0) < 1.0 or item.of_last is not None
        )

    def duration(self, seconds: float, *, at_least_s: float = 0.001) -> str:
        """Return a duration of PromQL and of Prometheus's files: ``6h``, ``250ms``.

        It is scaled, but never below a minimum.
        """
        milliseconds = round(max(at_least_s, seconds * self.time_scale) * 1_000)
        for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
            if milliseconds % size == 0:
                return f"{milliseconds // size}{unit}"
        return f"{milliseconds}ms"


def _highest_sample_rate(evaluators: Sequence[Evaluator]) -> float:
    """Return the highest sampling ratio of the evaluators, which is 1 for those without their own."""
    own_rates = [evaluator.sample_rate for evaluator in evaluators]
    return max((1.0 if rate is None else rate for rate in own_rates), default=1.0)


def _judged_names(evaluators: Sequence[Evaluator]) -> set[str]:
    """Return the names of the criteria whose evaluator calls a model."""
    names: set[str] = set()
    for evaluator in evaluators:
        if evaluator.calls_model:
            names.update(criterion.name for criterion in declared_criteria(evaluator))
    return names


def _calibration(
    criterion: str, evaluators: Sequence[Evaluator], calibrations: CalibrationRecords | None
) -> CalibrationRecord | None:
    """Return the record of the only judge that scores the criterion.

    The result is None if several judges differ, or if the record has expired or cannot correct.
    """
    versions = set()
    for evaluator in evaluators:
        if any(own.name == criterion for own in declared_criteria(evaluator)):
            signature = evaluator.signature
            versions.add((signature["evaluator_id"], signature["evaluator_version"]))
    if calibrations is None or len(versions) != 1:
        return None
    evaluator_id, version = versions.pop()
    record = calibrations.find(criterion, evaluator_id)
    if record is None or record.expired_because(evaluator_version=version) is not None:
        return None
    # The square is compared so that NaN cannot correct either.
    if not record.can_correct or not record.correction.square > 0:
        return None
    return record


def _alertable(runner: EvaluationRunner) -> Iterator[EvaluationCriteria]:
    """Yield the criteria of a handler.

    A function with an objective and without a threshold gives verdicts, whatever its criterion's
    scale.
    """
    functions = {part.criterion_name for part in runner.evaluators if isinstance(part, Func)}
    for criterion in runner.criteria:
        is_of_function = criterion.name in functions
        if is_of_function and criterion.objective and criterion.threshold is None:
            yield criterion.model_copy(update={"scale": "binary"})
        else:
            yield criterion


def _functions(
    names: Sequence[str], changes: Sequence[EvaluationCriteria]
) -> Iterator[EvaluationCriteria]:
    declared = [EvaluationCriteria(name=name, scale="binary") for name in names]
    yield from changed_criteria(declared, changes)
