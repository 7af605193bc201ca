"""Every attribute, event and metric name that we write, with its unit.

They are defined only here. Names that only other libraries write are in the mapper of their
dialect.

The names under ``gen_ai.`` are those of the OpenTelemetry GenAI conventions (Development status),
except for those marked *extension*, which come from the product's specification or open proposals.
Our own begin with ``agenteval.``.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, get_args

SCOPE_NAME: Final = "agenteval_otel"
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"

# --- events
# -----------------------------------------------------------------------------------------------------------
EVENT_RESULT: Final = "gen_ai.evaluation.result"
EVENT_NO_SCORE: Final = "agenteval.evaluation.no_score"
EVENT_BREACHED: Final = "agenteval.objective.breached"
EVENT_RECOVERED: Final = "agenteval.objective.recovered"
EVENT_ANSWER: Final = "agenteval.answer"
EVENT_ANSWER_FORMER: Final = "gen_ai.client.inference.operation.details"
"""The name that earlier versions gave to answers for the sidecar. It is read for one release."""

# --- attributes of the conventions
# ------------------------------------------------------------------------------------
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
SCORE_VALUE: Final = "gen_ai.evaluation.score.value"
SCORE_LABEL: Final = "gen_ai.evaluation.score.label"
EXPLANATION: Final = "gen_ai.evaluation.explanation"
ERROR_TYPE: Final = "error.type"
OPERATION_NAME: Final = "gen_ai.operation.name"
AGENT_NAME: Final = "gen_ai.agent.name"
AGENT_ID: Final = "gen_ai.agent.id"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
TOKEN_TYPE: Final = "agenteval.token.type"

TEST_SUITE: Final = "test.suite.name"
TEST_SUITE_STATUS: Final = "test.suite.run.status"
TEST_CASE: Final = "test.case.name"
TEST_CASE_STATUS: Final = "test.case.result.status"
SuiteStatus = Literal["success", "failure", "aborted"]
CaseStatus = Literal["pass", "fail"]

OPERATION_EVALUATION: Final = "evaluation"
OPERATION_INVOKE_AGENT: Final = "invoke_agent"

# --- extensions under gen_ai.
# -----------------------------------------------------------------------------------------
EVALUATOR_ID: Final = "gen_ai.evaluation.evaluator.id"
EVALUATOR_VERSION: Final = "gen_ai.evaluation.evaluator.version"
EVALUATOR_TYPE: Final = "gen_ai.evaluation.evaluator.type"
EVALUATION_MODULE: Final = "gen_ai.evaluation.module"
HAS_GROUND_TRUTH: Final = "gen_ai.evaluation.has_ground_truth"
USER_PROMPT: Final = "gen_ai.evaluation.user_prompt"
FULL_RESPONSE: Final = "gen_ai.full_nl_response"

# --- our own attributes
# -----------------------------------------------------------------------------------------------
REASON_CODE: Final = "agenteval.evaluation.reason_code"
SCORE_NORMALIZED: Final = "agenteval.evaluation.score.normalized"
THRESHOLD: Final = "agenteval.evaluation.threshold"
EVALUATION_SHADOW: Final = "agenteval.evaluation.shadow"
EVALUATION_REPLAYED: Final = "agenteval.evaluation.replayed"
EVALUATION_LATE: Final = "agenteval.evaluation.late"
EVALUATION_INCOMPLETE: Final = "agenteval.evaluation.incomplete"
SUSPECTED_INJECTION: Final = "agenteval.evaluation.suspected_injection"
OVERALL_SCORE: Final = "agenteval.evaluation.overall_score"
FAILED_CRITERIA: Final = "agenteval.evaluation.failed_criteria"
EVALUATION_SAMPLED: Final = "agenteval.evaluation.sampled"
EVALUATION_CRITERIA: Final = "agenteval.evaluation.criteria"
SAMPLING_PROBABILITY: Final = "agenteval.sampling.probability"
SAMPLING_REASON: Final = "agenteval.sampling.reason"
SAMPLING_SCOPE: Final = "agenteval.sampling.scope"
SAMPLING_CLUSTERED: Final = "agenteval.sampling.clustered"
UNIT: Final = "agenteval.unit"
# JSON, on events for the sidecar: the parts of an input without a convention, and how it was
# sampled.
INPUT: Final = "agenteval.input"
SAMPLING_DECISION: Final = "agenteval.sampling.decision"
CALL_ID: Final = "agenteval.call.id"
SPANS_OUTCOME: Final = "agenteval.spans.outcome"
SPANS_SCOPE: Final = "agenteval.spans.scope"
STREAM_END: Final = "agenteval.stream.end"
RESPONSE_FORM: Final = "agenteval.response.form"
RESPONSE_ENDED_AT: Final = "agenteval.response.ended_at"
CAPTURE_REASON: Final = "agenteval.capture.reason"
CONVERSATION_TURNS: Final = "agenteval.conversation.turns"
CONVERSATION_END: Final = "agenteval.conversation.end"
OBJECTIVE: Final = "agenteval.objective.value"
OBJECTIVE_RATE: Final = "agenteval.objective.rate"
OBJECTIVE_LOW: Final = "agenteval.objective.low"
OBJECTIVE_HIGH: Final = "agenteval.objective.high"
OBJECTIVE_COUNT: Final = "agenteval.objective.count"
OBJECTIVE_SINCE: Final = "agenteval.objective.since"
OBJECTIVE_REMINDER: Final = "agenteval.objective.reminder"
PROMPT_NAME: Final = "gen_ai.prompt.name"
PROMPT_VERSION: Final = "gen_ai.prompt.version"
TAG: Final = "agenteval.tag."
USER_ID: Final = "user.id"
ENVIRONMENT: Final = "deployment.environment.name"
SERVICE_NAME: Final = "service.name"
SERVICE_VERSION: Final = "service.version"
EXPERIMENT_NAME: Final = "agenteval.experiment.name"
EXPERIMENT_ARM: Final = "agenteval.experiment.arm"
FORMER_NAMES: Final = {
    "agenteval.prompt.name": PROMPT_NAME,
    "agenteval.prompt.version": PROMPT_VERSION,
    "gen_ai.usage.cache_creation.input_tokens": CACHE_WRITE_TOKENS,
}
"""Names that earlier versions emitted, and the present ones: read for one release, not written."""
ANNOTATIONS: Final = {
    "prompt_name": PROMPT_NAME,
    "prompt_version": PROMPT_VERSION,
    "user_id": USER_ID,
    "environment": ENVIRONMENT,
    "experiment": EXPERIMENT_NAME,
    "arm": EXPERIMENT_ARM,
    "service": SERVICE_NAME,
    "service_version": SERVICE_VERSION,
}
"""The attribute of each keyword of `annotate` that slices results. Tags have the prefix `TAG`
instead.
"""
OUTCOME: Final = "agenteval.outcome"
EXPORT_SIGNAL: Final = "agenteval.export.signal"
EXPORT_REASON: Final = "agenteval.export.reason"
EXPORT_REACH: Final = "agenteval.export.reach"
NAME_KIND: Final = "agenteval.name.kind"
# On a result, names under `gen_ai.` describe the judged response; these describe the judge.
JUDGE_MODEL: Final = "agenteval.judge.model"
JUDGE_NAME: Final = "agenteval.judge.name"
JUDGE_PERIOD: Final = "agenteval.judge.period"
OBJECTIVE_BET: Final = "agenteval.objective.bet"
JUDGE_RESPONSE_ID: Final = "agenteval.judge.response.id"
JUDGE_CACHED: Final = "agenteval.judge.cached"
JUDGE_COST: Final = "agenteval.judge.cost"
JUDGE_INPUT_TOKENS: Final = "agenteval.judge.usage.input_tokens"
JUDGE_OUTPUT_TOKENS: Final = "agenteval.judge.usage.output_tokens"
JUDGE_CACHE_READ_TOKENS: Final = "agenteval.judge.usage.cache_read_tokens"
JUDGE_LEFT_OUT: Final = "agenteval.judge.left_out_chars"
JUDGE_CACHE_WRITE_TOKENS: Final = "agenteval.judge.usage.cache_write_tokens"
JUDGE_FINGERPRINT: Final = "agenteval.judge.system_fingerprint"
JUDGE_UNTRUSTED: Final = "agenteval.judge.untrusted"
JUDGE_CHECK: Final = "agenteval.judge.check"
CANARY: Final = "canary"
"""A check of a judge against the known answers of a file."""
REPEAT: Final = "repeat"
"""A check against the judge's own answer to the same question."""
POSITION: Final = "position"
"""As `REPEAT`, with the fields of the case in the reverse order."""
PEOPLE: Final = "people"
"""A check against what people say of the same answer."""
DRIFT: Final = "drift"
"""A check of the scores against those of the reference."""
AGREEMENTS: Final = (CANARY, REPEAT, POSITION, PEOPLE)
"""Checks whose outcome is a share that agrees."""

# Valid names of criteria: they become a part of attribute names.
CRITERION_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]{0,63}")
CRITERION_NAME_RULE: Final = "a letter a-z or A-Z, then at most 63 of these, digits, '_', '.', '-'"
RESERVED_CRITERIA: Final = (
    "evaluator",
    "explanation",
    "has_ground_truth",
    "label",
    "module",
    "name",
    "score",
    "user_prompt",
)
"""``gen_ai.evaluation.<word>`` is an attribute or a prefix of some already: no criterion may begin
with the word.
"""

TRACE_STATE: Final = "agenteval"
"""Entry in the trace state of run spans and of all spans below them, also those of other processes:
the trace's mark (`sampling.key.SamplingKey.mark`).
"""
SHADOW: Final = ".shadow"
"""Suffix of the criteria of evaluators on trial, to tell their results from those of the current
ones.
"""
LATE_OFF_PEAK: Final = "off_peak"
LATE_GROUND_TRUTH: Final = "ground_truth"
LATE_REPLAY: Final = "replay"
"""Why a result came later than the others of its time."""
SCOPE_RECEIVED: Final = "received"
UPSTREAM_TOO_SMALL: Final = "upstream_too_small"
UPSTREAM_NOT_KEPT: Final = "upstream_not_kept"
"""Why the probability of an answer is unknown."""
LABEL_PASS: Final = "pass"
LABEL_FAIL: Final = "fail"

# --- accounting: every call of a monitored handler ends in exactly one of these
# ---------------------------------------
EVALUATED: Final = "evaluated"
NOT_SAMPLED: Final = "not_sampled"
NOT_RECORDED: Final = "not_recorded"
SHED: Final = "shed"
DISABLED: Final = "disabled"
DROPPED_QUEUE_FULL: Final = "dropped_queue_full"
RATE_LIMITED: Final = "rate_limited"
DROPPED_SHUTDOWN: Final = "dropped_shutdown"
CAPTURE_FAILED: Final = "capture_failed"
PIPELINE_FAILED: Final = "pipeline_failed"
ALREADY_MONITORED: Final = "already_monitored"
SENT: Final = "sent"
DROPPED_UNSENT: Final = "dropped_unsent"

OUTCOMES: Final = (
    EVALUATED,
    SENT,
    NOT_SAMPLED,
    NOT_RECORDED,
    SHED,
    DISABLED,
    ALREADY_MONITORED,
    DROPPED_QUEUE_FULL,
    RATE_LIMITED,
    DROPPED_UNSENT,
    DROPPED_SHUTDOWN,
    CAPTURE_FAILED,
    PIPELINE_FAILED,
)
CaptureReason = Literal[
    "foreign_object",
    "unreadable_object",
    "unreadable_body",
    "unread_stream",
    "unknown_chunks",
    "unknown_parts",
    "no_answer",
    "no_content",
    "capture_raised",
    "reading_raised",
]
"""Why an answer was not understood. It is counted as the failure ``capture:<reason>``."""
CAPTURE_REASONS: Final[tuple[CaptureReason, ...]] = get_args(CaptureReason)
AS_JSON: Final = "json"
"""Value of `RESPONSE_FORM` where the handler's own data was judged as its JSON."""

DETAILS: Final = {EVALUATED: RESPONSE_FORM, CAPTURE_FAILED: CAPTURE_REASON}
"""The attribute for the detail of an outcome, where one is known."""

CONVERSATION_OUTCOMES: Final = ("evaluated", "failed", "dropped")
"""Of conversations that were closed: each ends in one of these."""
REQUEST_OUTCOMES: Final = ("evaluated", "refused", "failed")
"""Of requests for an evaluation: each ends in one of these."""
NOT_WANTED: Final = (NOT_SAMPLED, NOT_RECORDED, DISABLED, ALREADY_MONITORED)
"""Outcomes of calls whose answer was not to be evaluated."""

# --- spans of other libraries: each that arrives ends in exactly one of these
# ----------------------------------------
SPANS_READ: Final = "read"
SPANS_OURS: Final = "ours"
SPANS_NOT_UNDERSTOOD: Final = "not_understood"
SPANS_WITHOUT_ANSWER: Final = "without_answer"
SPANS_DROPPED: Final = "dropped"
SPANS_LOST: Final = ("late", "left_out", SPANS_DROPPED, "refused", "invalid")
SPANS_OUTCOMES: Final = (
    SPANS_READ,
    SPANS_OURS,
    SPANS_NOT_UNDERSTOOD,
    SPANS_WITHOUT_ANSWER,
    *SPANS_LOST,
)

# --- losses in export, by reason
# --------------------------------------------------------------------------------------
LOST_REASONS: Final = (
    "no_room",
    "rejected",
    "too_large",
    "unencodable",
    "shutdown",
    "provider_shut_down",
    "provider_raised",
    "host_queue_full",
)

# --- limits
# -----------------------------------------------------------------------------------------------------------
OTHER: Final = "_other"
MAX_MODELS: Final = 8  # of judges
MAX_WORDS: Final = 16  # categories of one criterion
MAX_JUDGE_OUTCOMES: Final = 24  # ours are fewer
MAX_ERROR_TYPES: Final = 4  # of one criterion
# of one criterion of one agent, whatever models and categories come; a histogram counts as one
MAX_SERIES: Final = 47
MAX_TAGS: Final = 16
MAX_SCOPES: Final = 24  # of spans that are not understood
MAX_SCOPE_CHARS: Final = 100
MAX_DIMENSIONS: Final = 4
MAX_DIMENSION_VALUES: Final = 16  # of one dimension, unless the settings say otherwise
OTHER_SERVICES: Final = (SERVICE_NAME, ENVIRONMENT)
"""Further attributes of metrics for evaluated spans of other services."""
MAX_CRITERIA_PER_SPAN: Final = 50  # two attributes each; the SDK evicts the oldest beyond 128


class Instrument(NamedTuple):
    """Describes a metric as it is created. `attributes` are the names of those that its points may have.

    `kind` is ``histogram``, ``counter``, ``up_down_counter`` or ``gauge``. All but histograms are
    observable.
    """

    name: str
    unit: str
    description: str
    attributes: tuple[str, ...] = ()
    kind: str = "counter"
    boundaries: tuple[float, ...] | None = None

    @property
    def prometheus_name(self) -> str:
        """Return the name in Prometheus.

        A histogram's three series also end in ``_bucket``, ``_sum`` and ``_count``.
        """
        name = self.name.replace(".", "_")
        unit = {"s": "_seconds", "By": "_bytes"}.get(self.unit, "")
        if not name.endswith(unit):
            name += unit
        if self.kind == "counter":
            name += "_total"
        return name


_SECONDS = (0.01, 0.04, 0.16, 0.64, 2.56, 10.24, 40.96)
_OF_LABEL = (EVALUATION_NAME, AGENT_NAME, REQUEST_MODEL, SCORE_LABEL)
_OF_AGENT = (EVALUATION_NAME, AGENT_NAME)

METRIC_SCORE: Final = Instrument(
    "gen_ai.evaluation.score",
    "1",
    "Normalized score of a criterion, 0 worst to 1 best.",
    _OF_LABEL[:3],
    "histogram",
    (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0),
)
METRIC_RESULTS: Final = Instrument(
    "agenteval.evaluation.results", "{result}", "Scored results by label.", _OF_LABEL
)
METRIC_WEIGHT: Final = Instrument(
    "agenteval.evaluation.weight", "1", "Sum of w = 1/probability.", _OF_LABEL
)
METRIC_WEIGHT_SQUARED: Final = Instrument(
    "agenteval.evaluation.weight_squared", "1", "Sum of w squared.", _OF_LABEL
)
METRIC_WEIGHTED_SCORE: Final = Instrument(
    "agenteval.evaluation.weighted_score", "1", "Sum of w times score.", _OF_AGENT
)
METRIC_WEIGHTED_SCORE_W2: Final = Instrument(
    "agenteval.evaluation.weighted_score_w2", "1", "Sum of w squared times score.", _OF_AGENT
)
METRIC_WEIGHTED_SCORE_SQUARED_W2: Final = Instrument(
    "agenteval.evaluation.weighted_score_squared_w2",
    "1",
    "Sum of w squared times score squared.",
    _OF_AGENT,
)
METRIC_UNITS: Final = Instrument(
    "agenteval.evaluation.units",
    "{unit}",
    "Conversations, else sessions or traces, else lone answers that have a result.",
    _OF_AGENT,
)
METRIC_UNIT_WEIGHT_SQUARED: Final = Instrument(
    "agenteval.evaluation.unit_weight_squared",
    "1",
    "Sum over units of W squared. W is the sum of w over a unit.",
    _OF_AGENT,
)
METRIC_UNIT_FAILED: Final = Instrument(
    "agenteval.evaluation.unit_failed",
    "1",
    "Sum over units of W times the sum of w of what failed.",
    _OF_AGENT,
)
METRIC_UNIT_FAILED_SQUARED: Final = Instrument(
    "agenteval.evaluation.unit_failed_squared",
    "1",
    "Sum over units of the squared sum of w of what failed.",
    _OF_AGENT,
)
METRIC_UNIT_SCORE: Final = Instrument(
    "agenteval.evaluation.unit_score",
    "1",
    "Sum over units of W times the sum of w times score.",
    _OF_AGENT,
)
METRIC_UNIT_SCORE_SQUARED: Final = Instrument(
    "agenteval.evaluation.unit_score_squared",
    "1",
    "Sum over units of the squared sum of w times score.",
    _OF_AGENT,
)
METRIC_PREFERRED: Final = Instrument(
    "agenteval.evaluation.preferred",
    "{result}",
    "Results of answers that sampling or escalation preferred.",
    _OF_AGENT,
)
METRIC_ERRORS: Final = Instrument(
    "agenteval.evaluation.errors",
    "{error}",
    "Failures by error type.",
    (EVALUATION_NAME, ERROR_TYPE),
)
METRIC_DURATION: Final = Instrument(
    "agenteval.evaluation.duration",
    "s",
    "Time of an evaluator that calls a model, by its criterion. Without one, of the whole run.",
    (EVALUATION_NAME,),
    "histogram",
    _SECONDS,
)
METRIC_LAG: Final = Instrument(
    "agenteval.evaluation.lag",
    "s",
    "End of the response to its result.",
    (AGENT_NAME,),
    "histogram",
    (0.1, 0.4, 1.6, 6.4, 25.6, 102.4),
)
METRIC_RESPONSES: Final = Instrument(
    "agenteval.responses",
    "{response}",
    "Calls by outcome. Answers judged as JSON and reasons of capture_failed are counted apart.",
    (AGENT_NAME, OUTCOME, RESPONSE_FORM, CAPTURE_REASON),
)
METRIC_ANSWERS: Final = Instrument(
    "agenteval.answers",
    "{response}",
    "Emitted answers by the unit that intervals and objectives take: conversation, session, trace, or "
    "the answer alone.",
    (AGENT_NAME, UNIT),
)
METRIC_SPANS: Final = Instrument(
    "agenteval.spans",
    "{span}",
    "Spans of other libraries by what became of them, those that are not understood by "
    "their scope.",
    (SPANS_OUTCOME, SPANS_SCOPE),
)
METRIC_CONVERSATIONS: Final = Instrument(
    "agenteval.conversations",
    "{conversation}",
    "Whole conversations by outcome: evaluated, failed, dropped.",
    (AGENT_NAME, OUTCOME),
)
METRIC_EVALUATE_REQUESTS: Final = Instrument(
    "agenteval.evaluate.requests",
    "{request}",
    "Requests for an evaluation over HTTP by outcome: evaluated, refused, failed.",
    (OUTCOME,),
)
METRIC_QUEUE_SIZE: Final = Instrument(
    "agenteval.queue.size",
    "{response}",
    "Responses waiting or under evaluation.",
    kind="up_down_counter",
)
METRIC_QUEUE_MAX_BYTES: Final = Instrument(
    "agenteval.queue.max_bytes", "By", "Bytes the captured calls may hold.", kind="up_down_counter"
)
METRIC_QUEUE_BYTES: Final = Instrument(
    "agenteval.queue.bytes", "By", "Estimated bytes of the queue.", kind="up_down_counter"
)
METRIC_QUEUE_DRAIN_TIME: Final = Instrument(
    "agenteval.queue.drain_time",
    "s",
    "Estimated time until the queue is empty: its work times its cost.",
    kind="gauge",
)
METRIC_LAST_SUCCESS: Final = Instrument(
    "agenteval.last_success", "s", "Unix time of the last result.", kind="gauge"
)
METRIC_LOOP_LAG: Final = Instrument(
    "agenteval.host.loop_lag",
    "s",
    "Greatest lateness of the host's event loops in the last minute.",
    kind="gauge",
)
METRIC_SAMPLING_LEVEL: Final = Instrument(
    "agenteval.sampling.level",
    "{level}",
    "Load shedding: 0 full, 1 reduced, 2 no model calls, 3 off.",
    kind="gauge",
)
METRIC_EXPORT_LOST: Final = Instrument(
    "agenteval.export.lost",
    "{item}",
    "Spans, events and metrics that did not reach the backend.",
    (EXPORT_SIGNAL, EXPORT_REASON),
)
METRIC_EXPORT_SIGNALS: Final = Instrument(
    "agenteval.export.signals",
    "{signal}",
    "1 for each signal that is emitted: delivered (our exporter has the "
    "receiver's answer) or handed_over (to the application's provider).",
    (EXPORT_SIGNAL, EXPORT_REACH),
    "gauge",
)
METRIC_JUDGE_CALLS: Final = Instrument(
    "agenteval.judge.calls",
    "{call}",
    "Questions to judges: answered, cached, refused by a guard (budget, "
    "budget_exhausted, breaker_open), or failed, by the error type.",
    (JUDGE_MODEL, OUTCOME),
)
METRIC_JUDGE_TOKENS: Final = Instrument(
    "agenteval.judge.tokens",
    "{token}",
    "Tokens that judges have used: input, output, cache_read, cache_write.",
    (JUDGE_MODEL, TOKEN_TYPE),
)
METRIC_JUDGE_COST: Final = Instrument(
    "agenteval.judge.cost", "{USD}", "Cost of judges, where prices are known.", (JUDGE_MODEL,)
)
METRIC_JUDGE_DURATION: Final = Instrument(
    "agenteval.judge.duration",
    "s",
    "Time of a call of a judge, its retries included, with the error type where it failed.",
    (JUDGE_MODEL, ERROR_TYPE),
    "histogram",
    _SECONDS,
)
METRIC_JUDGE_BREAKER: Final = Instrument(
    "agenteval.judge.breaker",
    "{state}",
    "Circuit breaker of a judge's endpoint: 0 closed, 1 half open, 2 open.",
    (JUDGE_NAME,),
    "gauge",
)
METRIC_JUDGE_BUDGET: Final = Instrument(
    "agenteval.judge.budget.remaining",
    "{USD}",
    "What is left for the minute and the day, in the account with the least.",
    (JUDGE_PERIOD,),
    "gauge",
)

_OF_JUDGE = (EVALUATION_NAME, JUDGE_MODEL)
METRIC_JUDGE_AGREEMENT: Final = Instrument(
    "agenteval.judge.agreement",
    "{share}",
    "Share of the last comparisons of a judge that agreed, 0 to 1: with known "
    "answers (canary), with itself (repeat, position), with people (people).",
    (*_OF_JUDGE, JUDGE_CHECK),
    "gauge",
)
METRIC_JUDGE_UNTRUSTED: Final = Instrument(
    "agenteval.judge.untrusted",
    "{judge}",
    "1 while a check (of agreement or drift) distrusts a judge's scores of a "
    "criterion, 0 once it trusts them again.",
    (*_OF_JUDGE, JUDGE_CHECK),
    "gauge",
)
METRIC_JUDGE_DRIFT: Final = Instrument(
    "agenteval.judge.drift",
    "{index}",
    "Population stability index of a judge's last scores to the reference: 0 is "
    "the same distribution.",
    _OF_JUDGE,
    "gauge",
)
METRIC_JUDGE_LENGTH_CORRELATION: Final = Instrument(
    "agenteval.judge.length_correlation",
    "{correlation}",
    "Spearman's rank correlation of a judge's last scores with the length of the answers, -1 to 1.",
    _OF_JUDGE,
    "gauge",
)
METRIC_JUDGE_CHECKS: Final = Instrument(
    "agenteval.judge.checks",
    "{check}",
    "Comparisons of judges by check: agreed, disagreed, not_comparable, or "
    "without a score (failed, skipped).",
    (JUDGE_CHECK, OUTCOME),
)
METRIC_JUDGE_CHANGES: Final = Instrument(
    "agenteval.judge.changes",
    "{change}",
    "Times that a judge answered as a model or configuration that had not answered lately.",
    (JUDGE_MODEL,),
)

METRIC_NAMES_OVERFLOW: Final = Instrument(
    "agenteval.names.overflow",
    "{lookup}",
    "Lookups of names from outside that have no series of their own, by what they name: their "
    "figures count under `_other`.",
    (NAME_KIND,),
)
METRIC_OBJECTIVE_BREACH: Final = Instrument(
    "agenteval.objective.breach",
    "{breach}",
    "1 while the process has detected that a criterion breaches its "
    "objective, else 0, from the first verdict on.",
    _OF_AGENT,
    "gauge",
)
METRIC_OBJECTIVE_EVIDENCE: Final = Instrument(
    "agenteval.objective.evidence",
    "{evidence}",
    "Natural logarithm of the evidence for a breach, relative to the "
    "alarm limit: 0 and above is an alarm. Not for criteria with `of_last`.",
    _OF_AGENT,
    "gauge",
)
METRIC_OBJECTIVE_GAIN: Final = Instrument(
    "agenteval.objective.gain",
    "{nat}",
    "What a bet against an objective has gained, as a sum of natural logarithms: a rule adds those "
    "of all processes. Not for criteria with `of_last` or the objective 1.",
    (*_OF_AGENT, OBJECTIVE_BET),
)
METRIC_OBJECTIVE_RUN_GAIN: Final = Instrument(
    "agenteval.objective.run_gain",
    "{nat}",
    "The same of failures that began a run of one reason code: of several processes the largest "
    "counts.",
    (*_OF_AGENT, OBJECTIVE_BET),
)
METRIC_OBJECTIVE_LOSS: Final = Instrument(
    "agenteval.objective.loss",
    "{nat}",
    "What such a bet has lost, as a positive number.",
    (*_OF_AGENT, OBJECTIVE_BET),
)
METRIC_OBJECTIVE_VERDICTS: Final = Instrument(
    "agenteval.objective.verdicts",
    "{verdict}",
    "Verdicts that these gains and losses are of.",
    _OF_AGENT,
)
METRIC_OBJECTIVE_AGE: Final = Instrument(
    "agenteval.objective.age",
    "s",
    "How long ago these gains and losses began, at 0: a rule counts all that a young process has.",
    _OF_AGENT,
    "gauge",
)

INSTRUMENTS: Final = tuple(
    value for value in tuple(globals().values()) if isinstance(value, Instrument)
)


def wrong_criterion_name(name: str) -> str | None:
    """Return why the name is invalid for a criterion, or None.

    The text omits the name, which may come from a variable.
    """
    if not CRITERION_NAME.fullmatch(name):
        return f"must be a slug: {CRITERION_NAME_RULE}"
    head = name.partition(".")[0]
    if head in RESERVED_CRITERIA:
        return f"must not begin with {head!r}, a name of the result itself. Reserved are {', '.join(RESERVED_CRITERIA)}"
    return None


def criterion_score(criterion: str) -> str:
    """Return the span attribute for a criterion's raw score (*extension*)."""
    return f"gen_ai.evaluation.{criterion}.score"


def criterion_label(criterion: str) -> str:
    """Return the span attribute for a criterion's label (*extension*)."""
    return f"gen_ai.evaluation.{criterion}.label"
