"""Results: scores, skips and failures, one by one and put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, SupportsFloat, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from agenteval_otel.models.inputs import (
    NO_GROUND_TRUTH,
    Annotations,
    EvaluationInput,
    Incomplete,
    StreamEnd,
    names_of,
)
from agenteval_otel.models.judge_calls import Judgement
from agenteval_otel.models.value import Value, number_of
from agenteval_otel.runtime.masking import printable
from agenteval_otel.runtime.text import aligned, brief


def plain_score(value: object) -> Any:
    """Return a score with a number of another library as Python's own.

    Raises:
        ValueError: The value is neither a boolean, a number nor text.
    """
    if value is None or isinstance(value, str | bytes):
        return value
    number = number_of(value)
    if number is None:  # pydantic would take the real part of a complex number
        raise ValueError("expected a boolean, a number or text")
    return number


ScoreValue: TypeAlias = bool | int | float | str
_AnyScore: TypeAlias = Annotated[ScoreValue, BeforeValidator(plain_score)]
"""A score that may come as a number of another library."""
_WIDTHS = (40, 24, 12, 60)  # of a result's line: criterion, outcome, score, reason
_LINE = 120


NoScoreReason: TypeAlias = Literal[
    "not_applicable",
    "no_ground_truth",
    "no_answer",
    "no_result",
    "not_escalated",
    "load_shed",
    "budget",
    "budget_exhausted",
]
"""Why a criterion has no score, where no evaluator failed. `not_applicable` is an evaluator's own word:
the answer has nothing that it judges.
"""
NO_ANSWER: Final = "no answer: the handler raised"
NO_RESULT: Final = "no result"
NOT_ESCALATED: Final = "not_escalated"
"""No rule of the escalation matched, and its baseline did not sample the answer."""
LOAD_SHED: Final = "load_shed"
"""Under load, no model is called."""
BUDGET: Final = "budget"
"""A judge's call was left out by chance, because a limit is near: a sample."""
BUDGET_EXHAUSTED: Final = "budget_exhausted"
"""A judge's call does not fit into a limit: a loss."""
_REASONS: Final[dict[str, NoScoreReason]] = {
    NO_ANSWER: "no_answer",
    NO_RESULT: "no_result",
    NOT_ESCALATED: "not_escalated",
    LOAD_SHED: "load_shed",
    BUDGET: "budget",
    BUDGET_EXHAUSTED: "budget_exhausted",
}


def no_score_reason(skip_reason: str) -> NoScoreReason:
    """Return the word for what a skip says. A lack of ground truth may be followed by details."""
    if skip_reason.partition(":")[0] == NO_GROUND_TRUTH:
        return "no_ground_truth"
    return _REASONS.get(skip_reason, "not_applicable")


class Score(Value):
    """What an evaluator found.

    Attributes:
        value: On the criterion's scale: boolean, number or category.
        label: Category for the telemetry. Derived from `passed` when left out.
        passed: The evaluator's own verdict, where it has one.
        reasoning: Free text. It is content, so exported only with content capture on.
        reason_code: A word of the evaluator's closed list, safe to export.
        metadata: Evaluator-specific facts, kept with the stored result.
    """

    value: _AnyScore = Field(kw_only=False)
    label: str | None = None
    passed: bool | None = None
    reasoning: str | None = None
    reason_code: str | None = None
    metadata: dict[str, Any] | None = None


ScoreLike: TypeAlias = Score | ScoreValue | SupportsFloat
"""What `CriterionEvaluator.score` and a function may return: a `Score`, or its value alone, as a
number of any library too.
"""


def unit_of(*, conversation: str | None, session: str | None, trace: str | None) -> str | None:
    """Return the id that an answer shares with the answers that are not independent of it.

    This is its conversation, else its session, else its trace. Return None for an answer that
    has none of them.
    """
    return conversation or session or trace


class HasUnit:
    """An evaluated answer, which is part of a unit: what may be taken for independent."""

    __slots__ = ()

    @property
    def _unit_ids(self) -> dict[str, str | None]:
        """Return the ids of its conversation, session and trace, by these words."""
        raise NotImplementedError

    @property
    def unit(self) -> str | None:
        """Return what the answer shares with others that are not independent of it (`unit_of`)."""
        return unit_of(**self._unit_ids)

    @property
    def unit_kind(self) -> str:
        """Return what the unit is: ``conversation``, ``session``, ``trace``, else ``answer``."""
        return next((kind for kind, value in self._unit_ids.items() if value), "answer")


class EvaluationResult(Value):
    """One score, skip or failure of one criterion by one evaluator: exactly one of the three.

    Attributes:
        score: Raw score on the criterion's scale. None for skips and failures.
        error: What broke. Set for failures only. `error_type` is its low-cardinality word.
        skip_reason: Why the evaluator abstained. Set for skips only. Its `reason_code` is then one
            of `NoScoreReason`.
        normalized: The score moved to [0, 1], higher is better. None where the scale has no such
            form.
        evaluator_kind: ``deterministic``, ``llm_judge``, ``embedding``, ``human`` or
            ``application``.
        calls_model: The evaluator asked a model, so its time and its span are worth showing.
        shadow: The evaluator is tried: the result counts in no overall score, objective, alert or
            verdict.
        objective: The share of results that should pass, as the criterion had it. Set for scores
            only. None without one.
        probability: Inclusion probability of this response for this evaluator. None when unknown.
        least_probability: The least one that an answer of the agent can have, where this response's
            is more than twice as high: it was preferred, and tells little of most answers. None for
            all others, and where it is unknown.
        probability_given_sampled: What the evaluator adds to it (a spend limit that lets through a
            share of the calls). None when unknown. The runner multiplies it into `probability`. It
            is not dumped.
        sampling_reason: Why this evaluator was run, if that was decided separately from the
            response's sampling.
        judgement: Which model judged, and what that took. It is for the telemetry and not dumped.
    """

    criterion_name: str
    score: _AnyScore | None = None
    evaluator_type: str
    reasoning: str | None = None
    error: str | None = None
    metadata: dict[str, Any] | None = None
    normalized: float | None = None
    label: str | None = None
    passed: bool | None = None
    threshold: float | None = None
    objective: float | None = None
    reason_code: str | None = None
    error_type: str | None = None
    skip_reason: str | None = None
    evaluator_id: str | None = None
    evaluator_version: str | None = None
    evaluator_kind: str = "deterministic"
    calls_model: bool = False
    suspected_injection: bool = False
    shadow: bool = False
    probability: float | None = None
    least_probability: float | None = None
    probability_given_sampled: float | None = Field(default=1.0, exclude=True)
    sampling_reason: str | None = None
    judgement: Judgement | None = Field(default=None, exclude=True)
    started_ns: int | None = None
    ended_ns: int | None = None
    raised: bool = False
    filler: ScoreValue | None = Field(default=None, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _a_failure_has_no_score(cls, data: object) -> Any:
        # The originals store a filler as the score of failures; on load it becomes `filler`.
        if isinstance(data, Mapping) and data.get("error") and data.get("score") is not None:
            return {**data, "score": None, "filler": data["score"]}
        return data

    def __str__(self) -> str:
        """Return one line: the criterion, the outcome, the score and why."""
        return " ".join(cell for cell in self._cells() if cell)

    def _cells(self) -> tuple[str, str, str, str]:
        if isinstance(self.score, float):
            value = f"{self.score:.2f}"
        elif self.score is None:
            value = ""
        else:
            value = str(self.score)
        outcome: str = self.status
        if outcome == "scored" and self.label:
            outcome = self.label
        if value == outcome:
            value = ""
        why = self.error or self.skip_reason or self.reasoning or self.reason_code or ""
        cells = (self.criterion_name, outcome, value, why)
        return tuple(
            printable(brief(cell, limit)) for cell, limit in zip(cells, _WIDTHS, strict=True)
        )  # type: ignore[return-value]

    @property
    def status(self) -> Literal["scored", "skipped", "failed"]:
        """Return ``failed`` if the evaluator broke, ``skipped`` if it abstained, else ``scored``."""
        if self.error:
            return "failed"
        return "skipped" if self.skip_reason is not None else "scored"

    @property
    def judge_model(self) -> str | None:
        """Return the model that judged, as its provider names it.

        Stored results have it too. Return None if no model judged.
        """
        if self.judgement is not None:
            return self.judgement.model or None
        facts = (self.metadata or {}).get("judge")
        model = facts.get("model") if isinstance(facts, Mapping) else None
        return model if isinstance(model, str) else None

    def original_json(self) -> dict[str, Any]:
        """Return the original framework's JSON form.

        A result with an error has the filler score of its evaluator.
        """
        optional = {"reasoning": self.reasoning, "error": self.error, "metadata": self.metadata}
        return {
            "criterionName": self.criterion_name,
            "score": self.filler if self.error else self.score,
            "evaluatorType": self.evaluator_type,
            **_present(optional),
        }


class RunError(Value):
    """Names an evaluator or storage provider that raised, by its label.

    What else the originals say (a stack) is kept.
    """

    model_config = ConfigDict(extra="allow")

    message: str
    evaluator_type: str | None = None


class SpanReference(Value):
    """The evaluated span, as it can be written down: hexadecimal ids, flags and trace state."""

    trace_id: str
    span_id: str
    trace_flags: int = 0
    trace_state: str = ""
    is_remote: bool = False


Late: TypeAlias = Literal["off_peak", "ground_truth"]
"""Why a result came later than others of its time."""


class AggregatedEvaluationResult(HasUnit, Annotations):
    """All results of one input, with the weighted overall score.

    Attributes:
        overall_score: Weighted mean of the normalized scores, 0 worst to 1 best. None when nothing
            could be averaged.
        timestamp: Milliseconds since the epoch, end of the run.
        input_snapshot: The whole input offline. For monitored answers it is set only with content
            capture on.
        span: The evaluated span. None when there was none.
        call_id: The answer's own id, 16 hexadecimal digits: other results of the same answer have
            it too, and another answer of the span has another one. None offline.
        response_ended_ns: When the answer was complete, nanoseconds since the epoch. For a whole
            conversation, when its last turn was.
        late: Why the results came later than others of their time: the answer waited for an
            off-peak window or batch, or for its ground truth.
        incomplete: The answer was evaluated before all of its trace was there.
        sampling_scope: ``received`` where the probability is relative to what this process saw,
            because sampling before it is unknown. Otherwise None.
        sampling_clustered: The handler has more than eight calls in one trace, which are sampled
            together: intervals that take them for independent are too narrow.
        replayed: A recorded answer was scored again: the result is in no live metric.
    """

    overall_score: float | None = None
    results: tuple[EvaluationResult, ...] = ()
    timestamp: int = 0
    agent_id: str | None = None
    session_id: str | None = None
    input_snapshot: EvaluationInput | None = None
    evaluation_config_snapshot: dict[str, Any] | None = None
    metadata: dict[str, Any] = {}
    run_errors: tuple[RunError, ...] | None = None
    agent: str | None = None
    span: SpanReference | None = None
    call_id: str | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    response_ended_ns: int | None = None
    sampling_probability: float | None = None
    sampling_reason: str | None = None
    sampling_scope: str | None = None
    sampling_clustered: bool = False
    has_ground_truth: bool = False
    stream_end: StreamEnd | None = None
    incomplete: Incomplete | None = None
    response_id: str | None = None
    conversation_id: str | None = None
    model: str | None = None
    replayed: bool = False
    late: Late | None = None

    @property
    def due_ns(self) -> int | None:
        """Return since when the evaluation could begin.

        Return None if the answer waited for something else.
        """
        has_waited = self.late is not None or self.replayed or "conversation" in self.metadata
        return None if has_waited else self.response_ended_ns

    def __str__(self) -> str:
        """Return the overall score, and a line for each result and each error of the run."""
        return "\n  ".join([f"overall score {self._overall}", *aligned(self._rows())])

    def __repr__(self) -> str:
        """Return one line.

        In a list, and in the report of a test, the whole result would hide the others.
        """
        outcomes = ", ".join(" ".join(row[:2]) for row in self._rows())
        return f"<AggregatedEvaluationResult {self._overall}: {brief(outcomes, _LINE)}>"

    def _rows(self) -> list[tuple[str, str, str, str]]:
        rows = [result._cells() for result in self.results]
        evaluators = {result.evaluator_id for result in self.results}
        for error in self.run_errors or ():
            if error.evaluator_type not in evaluators:
                message = printable(brief(error.message, _WIDTHS[-1]))
                rows.append((error.evaluator_type or "run", "error", "", message))
        return rows

    @property
    def _overall(self) -> str:
        return "-" if self.overall_score is None else f"{self.overall_score:.2f}"

    @field_validator("input_snapshot", mode="before")
    @classmethod
    def _of_another_version(cls, value: object) -> Any:
        if not isinstance(value, Mapping):
            return value
        # Results that were stored have to load, whatever fields their inputs had.
        known = names_of(EvaluationInput)
        return {name: field for name, field in value.items() if name in known}

    @property
    def module(self) -> str | None:
        """Return the part of the system that answered, if the input is there to tell.

        Otherwise return the agent.
        """
        if self.input_snapshot is None:
            return self.agent
        return self.input_snapshot.module or self.agent

    @property
    def _unit_ids(self) -> dict[str, str | None]:
        return {
            "conversation": self.conversation_id,
            "session": self.session_id,
            "trace": None if self.span is None else self.span.trace_id,
        }

    def original_json(self) -> dict[str, Any]:
        """Return AgentDock's JSON form.

        Results of evaluators that raised are in ``runErrors`` only. Skipped results are
        left out.
        """
        snapshot = None
        if self.input_snapshot is not None:
            snapshot = self.input_snapshot.model_dump(
                mode="json", by_alias=True, exclude_unset=True
            )
        run_errors = [error.model_dump(by_alias=True) for error in self.run_errors or ()]
        optional = {
            "overallScore": self.overall_score,
            "agentId": self.agent_id,
            "sessionId": self.session_id,
            "evaluationConfigSnapshot": self.evaluation_config_snapshot,
            "inputSnapshot": snapshot,
            "runErrors": run_errors or None,
        }
        results = [
            result for result in self.results if not result.raised and not result.skip_reason
        ]
        return {
            "results": [result.original_json() for result in results],
            "timestamp": self.timestamp,
            "metadata": self.metadata,
            **_present(optional),
        }


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
