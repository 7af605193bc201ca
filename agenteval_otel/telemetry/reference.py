"""Where each attribute stands, and which spans there are: what the reference in the documents is made of."""

from __future__ import annotations

from typing import Final, NamedTuple

from agenteval_otel.semconv import (
    AGENT_NAME,
    CONVERSATION_ID,
    ERROR_TYPE,
    EVALUATION_CRITERIA,
    EVALUATION_MODULE,
    EVALUATION_NAME,
    EVALUATION_SAMPLED,
    EVALUATOR_ID,
    EVALUATOR_TYPE,
    EVALUATOR_VERSION,
    EXPLANATION,
    EXPORT_REACH,
    EXPORT_REASON,
    EXPORT_SIGNAL,
    FAILED_CRITERIA,
    FULL_RESPONSE,
    HAS_GROUND_TRUTH,
    JUDGE_CACHE_READ_TOKENS,
    JUDGE_CACHE_WRITE_TOKENS,
    JUDGE_CACHED,
    JUDGE_COST,
    JUDGE_INPUT_TOKENS,
    JUDGE_MODEL,
    JUDGE_NAME,
    JUDGE_OUTPUT_TOKENS,
    JUDGE_PERIOD,
    JUDGE_RESPONSE_ID,
    OBJECTIVE,
    OBJECTIVE_COUNT,
    OBJECTIVE_HIGH,
    OBJECTIVE_LOW,
    OBJECTIVE_RATE,
    OBJECTIVE_REMINDER,
    OBJECTIVE_SINCE,
    OPERATION_EVALUATION,
    OPERATION_INVOKE_AGENT,
    OPERATION_NAME,
    OUTCOME,
    OVERALL_SCORE,
    REASON_CODE,
    REQUEST_MODEL,
    RESPONSE_ID,
    SAMPLING_CLUSTERED,
    SAMPLING_PROBABILITY,
    SAMPLING_REASON,
    SAMPLING_SCOPE,
    SCORE_LABEL,
    SCORE_NORMALIZED,
    SCORE_VALUE,
    STREAM_END,
    SUSPECTED_INJECTION,
    THRESHOLD,
    TOKEN_TYPE,
    USER_PROMPT,
    criterion_label,
    criterion_score,
)

__all__ = ["ATTRIBUTES", "SPANS", "Attribute", "SpanShape"]


class Attribute(NamedTuple):
    """An attribute, what it says, and when each carrier has it; empty where it never does.

    Attributes:
        event: On the event of a result, and on its span, which has the same attributes.
        evaluated_span: On the span of the answer; ``agent span`` where only the one that we open has it.
        extension: A name under ``gen_ai.`` that the conventions do not define.
        crossing: On the event that tells of an objective.
    """

    name: str
    kind: str
    description: str
    event: str = ""
    run_span: str = ""
    evaluated_span: str = ""
    extension: bool = False
    crossing: str = ""


class SpanShape(NamedTuple):
    """A kind of span: its name's pattern, its parent, and when it is written."""

    name: str
    parent: str
    when: str


_CONTENT = "content capture on spans"

ATTRIBUTES: Final = (
    Attribute(EVALUATION_NAME, "string", "The criterion.", "always", crossing="always"),
    Attribute(SCORE_VALUE, "double", "The raw score; a boolean as 1.0 or 0.0.", "scored, and no category"),
    Attribute(SCORE_LABEL, "string", "`pass` or `fail` where a threshold or a boolean decides, else the evaluator's "
              "category.", "scored, when known"),
    Attribute(EXPLANATION, "string", "Why, in the evaluator's words: content.", "content capture on events"),
    Attribute(REASON_CODE, "string", "A word of the evaluator's closed list, never text of the answer.", "when known"),
    Attribute(ERROR_TYPE, "string", "What broke: the evaluator (then there is neither score nor label), or the handler "
              "that the span is about.", "failed", "", "agent span, the handler raised"),
    Attribute(SCORE_NORMALIZED, "double", "The score moved to [0, 1], higher is better.", "when known"),
    Attribute(THRESHOLD, "double", "The score from which the criterion passes.", "when known"),
    Attribute(criterion_score("<criterion>"), "double", "The raw score of each criterion.", "", "scored, "
              "and no category", "agent span that ends on the background thread: scored by then", extension=True),
    Attribute(criterion_label("<criterion>"), "string", "The label of each criterion.", "", "scored, when known",
              "agent span that ends on the background thread: scored by then", extension=True),
    Attribute(OVERALL_SCORE, "double", "Weighted mean of the normalized scores.", "", "when known"),
    Attribute(FAILED_CRITERIA, "string[]", "The criteria that did not pass.", "", "when there are any"),
    Attribute(EVALUATOR_ID, "string", "Which evaluator it was.", "always", extension=True),
    Attribute(EVALUATOR_VERSION, "string", "Fingerprint of its configuration.", "always", extension=True),
    Attribute(EVALUATOR_TYPE, "string", "`deterministic`, `llm_judge`, `embedding` or `human`.", "always",
              extension=True),
    Attribute(SUSPECTED_INJECTION, "boolean", "Text addressed to a judge was found.", "true or absent"),
    Attribute(SAMPLING_PROBABILITY, "double", "Inclusion probability of the response; on the event for this evaluator, "
              "its own rate, escalation and a judge's spend limit included.", "when known", "when known"),
    Attribute(SAMPLING_REASON, "string", "Which sampler decided; on the event of an escalated criterion which rule, or "
              "`baseline`.", "when known", "when known"),
    Attribute(SAMPLING_SCOPE, "string", "`received`: the probability is relative to the responses that this process "
              "saw, because nothing is known of sampling upstream.", "received or absent", "received or absent"),
    Attribute(SAMPLING_CLUSTERED, "boolean", "The handler has more than eight calls in one trace, which are sampled "
              "together: intervals that take them for independent are too narrow.", "true or absent", "true or absent",
              crossing="true or absent"),
    Attribute(STREAM_END, "string", "`completed`, `error` or `abandoned`.", "streamed answers", "streamed answers"),
    Attribute(RESPONSE_ID, "string", "Id of the model's response.", "when known", "when known"),
    Attribute(CONVERSATION_ID, "string", "Id of the conversation; never made up.", "when known", "when known"),
    Attribute(REQUEST_MODEL, "string", "The model that answered.", "when known", "when known"),
    Attribute(AGENT_NAME, "string", "The monitored agent.", "always", "always", "agent span", crossing="always"),
    Attribute(OPERATION_NAME, "string", "`evaluation`; of an agent span `invoke_agent`.", "", "always", "agent span"),
    Attribute(EVALUATION_MODULE, "string", "The monitored agent, again.", "", "always", extension=True),
    Attribute(HAS_GROUND_TRUTH, "boolean", "A reference answer was there.", "", "always", extension=True),
    Attribute(USER_PROMPT, "string", "The question: content.", "", _CONTENT, extension=True),
    Attribute(FULL_RESPONSE, "string", "The answer: content.", "", _CONTENT, extension=True),
    Attribute(EVALUATION_SAMPLED, "boolean", "The answer is evaluated.", "", "", "decided before it ends"),
    Attribute(EVALUATION_CRITERIA, "string[]", "The criteria that it is scored by.", "", "", "decided before it ends"),
    Attribute(JUDGE_MODEL, "string", "The model that judged, as its provider names it; on metrics as it is configured.",
              "judged by a model"),
    Attribute(JUDGE_RESPONSE_ID, "string", "The provider's id of the judge's answer.", "judged by a model, when known"),
    Attribute(JUDGE_INPUT_TOKENS, "int", "Tokens of the question to the judge. As all that a call took, on the first "
              "of its criteria only.", "judged by a model, when counted"),
    Attribute(JUDGE_OUTPUT_TOKENS, "int", "Tokens of the judge's answer.", "judged by a model, when counted"),
    Attribute(JUDGE_CACHE_READ_TOKENS, "int", "Tokens of the question that the provider had kept.",
              "judged by a model, when counted"),
    Attribute(JUDGE_CACHE_WRITE_TOKENS, "int", "Tokens of the question that the provider keeps.",
              "judged by a model, when counted"),
    Attribute(JUDGE_COST, "double", "US dollars.", "judged by a model, where prices are known"),
    Attribute(JUDGE_CACHED, "boolean", "The verdict was kept from before.", "true or absent"),
    Attribute(OBJECTIVE, "double", "The share of passing results that the criterion should hold.", crossing="always"),
    Attribute(OBJECTIVE_RATE, "double", "The share that passes, of the last verdicts; each weighted by 1 / its "
              "probability.", crossing="always"),
    Attribute(OBJECTIVE_LOW, "double", "Lower end of the rate's 95 % interval.", crossing="always"),
    Attribute(OBJECTIVE_HIGH, "double", "Its upper end.", crossing="always"),
    Attribute(OBJECTIVE_COUNT, "int", "Verdicts that the rate is made of.", crossing="always"),
    Attribute(OBJECTIVE_SINCE, "double", "Unix time in seconds at which it was found that the objective is not held.",
              crossing="always"),
    Attribute(OBJECTIVE_REMINDER, "boolean", "It was told before, and lasts.", crossing="true or absent"),
    Attribute(JUDGE_NAME, "string", "A judge's type and model; on a metric only."),
    Attribute(JUDGE_PERIOD, "string", "`minute` or `day`; on a metric only."),
    Attribute(TOKEN_TYPE, "string", "`input`, `output`, `cache_read` or `cache_write`; on a metric only."),
    Attribute(EXPORT_SIGNAL, "string", "`traces`, `logs` or `metrics`; on a metric only."),
    Attribute(EXPORT_REASON, "string", "Why something was lost on the way out; on a metric only."),
    Attribute(
        EXPORT_REACH, "string",
        "`delivered`: the receiver's answer is known; `handed_over`: to the application's provider; on a metric only.",
    ),
    Attribute(OUTCOME, "string", "What became of a call, or of a question to a judge; on a metric only."),
)  # fmt: skip

SPANS: Final = (
    SpanShape(f"{OPERATION_EVALUATION} {{agent}}", "the evaluated span; or none, with a link to it", "run span: one "
              "for each evaluated response, unless `detail` is `none` or the trace is not sampled"),
    SpanShape(f"{OPERATION_EVALUATION} {{criterion}}", "the run span", "result span: evaluators that call a model and "
              "failures (`auto`), all results (`result`), none (`response`, `none`)"),
    SpanShape(f"{OPERATION_INVOKE_AGENT} {{agent}}", "none", "agent span: where the handler runs outside of any trace "
              "(`own_span`: `sampled`, `always`, `never`)"),
)  # fmt: skip
