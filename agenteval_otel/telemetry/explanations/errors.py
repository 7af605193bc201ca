"""Errors: what an `error.type` of an evaluator says."""

from __future__ import annotations

from typing import Final

from agenteval_otel import semconv as names
from agenteval_otel.telemetry.explanations.base import SLOW, Explanation

__all__ = ["ERROR_TYPES", "explanation_of_error"]

ERROR_TYPES: Final[dict[str, Explanation]] = {
    "timeout": Explanation(
        "The evaluator took longer than its limit: 5 s, 30 s where it is `async`, or its `timeout_s`.",
        ("a judge that answers late", "a pattern of a rule that searched longer than its limit"),
        ("Give it a `timeout_s` that fits, or a smaller `sample_rate`.",),
    ),
    "quarantined": Explanation(
        "The evaluator would not stop at its limit, ended its process or blocked the background thread, three times.",
        ("it blocks or computes without a limit of its own, or swallows its cancellation", "it crashes: see `crashed`"),
        ("Give what it waits for a time limit, and restart the process.",),
    ),
    "crashed": Explanation(
        "The worker process ended during this evaluation.",
        ("a crash in an extension module, `os._exit`, or the system's memory limit",),
        ("Run the evaluator on the same input with `run_evaluation`, in a process that may die.",),
    ),
    "blocked": Explanation(
        "The evaluator held the background thread, and another thread took over: it has failed for those answers.",
        ("it blocks or computes on the background thread: `execution` is `inline` or `async`",),
        ("Give it `execution: thread`, or `process` where it burns CPU.",),
    ),
    "queue_full": Explanation("8,192 evaluations waited for the same execution.", (SLOW,), ("Sample less.",)),
    "cancelled": Explanation(
        "The evaluator cancelled itself.", ("its own code cancels its task",), ("Raise `EvaluationSkipped` instead.",)
    ),
    "awaits": Explanation(
        "An evaluator in a worker process awaited something.",
        ("`evaluate` awaits, and `execution` is `process`",),
        ("Leave `execution` out, or let it be `async`.",),
    ),
    "invalid_score": Explanation(
        "What the evaluator returned is no score: NaN, an infinity, a number outside of the criterion's scale (the "
        "message names both), or neither a `Score` nor a boolean, a number or text.",
        (
            "a division by nothing in its code",
            "percentages or 1-to-5 scores on the scale `numeric`, which takes 0 to 1",
        ),
        ("Raise `EvaluationSkipped` where the evaluator does not apply.", "Set `scale`: `likert5`, `0-100`."),
    ),
    "invalid_result": Explanation(
        "The evaluator gave no list of results, or one for a criterion that it does not declare.",
        ("`criteria` and `evaluate` do not agree",),
        ("Check it with `agenteval_otel.testing.check_evaluator`.",),
    ),
    "invalid_input": Explanation(
        "The worker process could not read the input.",
        ("an input that is nested too deeply, given to `run_evaluation` or by `capture=`",),
        ("Run the evaluator on the same input with `run_evaluation`.",),
    ),
    "missing_text": Explanation(
        "The evaluator looks at a field that this input does not have, or that is no text.",
        ("a path below `context` that nobody annotated", "an answer without text", "no ground truth to compare with"),
        ("Give it with `annotate(context=...)` or `annotate(ground_truth=...)`, or change the field.",),
    ),
    "missing_keywords": Explanation(
        "`KeywordCoverage` found no keywords in the ground truth or the context that it takes them from.",
        ("the field is away, empty, or neither text nor a list of texts",),
        ("Give it with `annotate`, or list the keywords in the configuration.",),
    ),
    "invalid_text": Explanation(
        "A value that is no text was to be compared as JSON, and has no JSON form.",
        ("it holds itself, a key that is no text, or is nested too deeply",),
        ("Give text, or a value of what JSON has.",),
    ),
    "invalid_value": Explanation(
        "A number that is none (NaN), or a value without a JSON form, was to be judged.",
        ("a cost that was worked out from nothing", "arguments of a tool call that hold themselves"),
        ("Leave out with `annotate` what is not known: what is missing is skipped.",),
    ),
    "invalid_check": Explanation(
        "A function that checks a tool call's arguments gave no answer.",
        ("it returns None or a text",),
        ("Let it give a boolean, a boolean with a reason, or `{is_valid, reason}`.",),
    ),
    "invalid_rule": Explanation(
        "A rule of the originals' form of configuration says nothing that could be judged.",
        ("a tool rule without a tool", "a rule of an unknown type, or with a pattern that is none"),
        ("Write it under `evaluators`: there it is refused at load, with the reason.",),
    ),
    "invalid_configuration": Explanation(
        "`KeywordCoverage`, in the originals' form of configuration, names a source of keywords that there is none of.",
        ("a `keywordsSourceField` that is not `config`, `groundTruth` or `context.<path>`",),
        ("Name one of these.",),
    ),
    "invalid_embedding": Explanation(
        "What the embedder gave is not two finite vectors of one length.",
        ("a model that answers with other shapes for other texts", "an embedder of your own with a defect"),
        ("Check it with `agenteval_otel.testing.check_embedder`.",),
    ),
    "model_unavailable": Explanation(
        "The embedding model on this machine cannot be loaded.",
        ("a model's name that was not downloaded before", "a folder that holds no model, or not all of one"),
        ("Give its folder, or `allow_download`: docs/embedders.md.",),
    ),
    "too_deep": Explanation(
        "JSON is nested too deeply to be checked.",
        ("an answer that repeats an opening bracket",),
        ("Nothing, where it is the answer's doing: it is not taken for valid or invalid.",),
    ),
    "too_large": Explanation(
        "JSON holds a number beyond every float, or more values than are checked.",
        ("an answer that is a dump of data",),
        ("Let the rule look at a part of it.",),
    ),
    "authentication": Explanation(
        "There is no key, the model's endpoint refused it, or the account behind it cannot pay (401, 402, 403).",
        ("a key that is missing, wrong or withdrawn", "an account without credit"),
        ("Look at `api_key` or `api_key_env` of the judge or the embedder: docs/judges.md.",),
    ),
    "bad_request": Explanation(
        "The model's endpoint refused the request (400 and the like).",
        ("a model or an endpoint that does not know the answer's form", "an `extra_body` that it does not take"),
        ("Look at the message of the failed result, offline: `run_evaluation_sync` shows it.",),
    ),
    "not_found": Explanation(
        "The model's endpoint does not know the model or the path (404).",
        ("a misspelled `model` or `base_url`",),
        ("Correct it.",),
    ),
    "rate_limited": Explanation(
        "The model's endpoint takes no more requests now (429), also after the retries.",
        ("more answers are judged than the account allows",),
        ("Lower the judge's `sample_rate`, or limit its `spend` a minute: docs/spend.md.",),
    ),
    "overloaded": Explanation(
        "The model's endpoint is overloaded (529), also after the retries.", ("its own load",), ("Wait.",)
    ),
    "server_error": Explanation(
        "The model's endpoint failed (5xx), also after the retries.", ("a failure there",), ("Wait.",)
    ),
    "connection_error": Explanation(
        "The model's endpoint could not be reached, or broke the connection off.",
        ("a network, a name or a `base_url` that is wrong", "an address that is not public, and is refused"),
        ("Look at `base_url`, and at docs/judges.md for private addresses.",),
    ),
    "breaker_open": Explanation(
        "The judge was not asked: it failed so often that it is left alone for a while.",
        ("one of the failures of judges, before",),
        ("Look at those; it is asked again by itself.",),
    ),
    "refusal": Explanation(
        "The model would not judge this answer.",
        ("content that it is trained to refuse",),
        ("Choose another model for this criterion, or accept the gap: a refusal is no score.",),
    ),
    "truncated": Explanation(
        "The judge's answer was cut off at its greatest length.",
        ("`max_tokens` is too small for the criteria",),
        ("Raise it, or ask for fewer criteria in one call.",),
    ),
    "empty_answer": Explanation(
        "The judge answered nothing.", ("a model that thinks until its tokens are used up",), ("Raise `max_tokens`.",)
    ),
    "malformed_answer": Explanation(
        "The judge's answer is not the one JSON object that it was asked for.",
        ("a model without JSON output", "a server that answers with a page"),
        ("Choose a model that can, or another `response_format`: docs/judges.md.",),
    ),
    "out_of_range": Explanation(
        "The judge's score has no place on the criterion's scale.",
        ("a small model, or an unclear scale",),
        ("Describe the levels of the scale, or choose another model.",),
    ),
    "context_overflow": Explanation(
        "The question is longer than the model can read.",
        ("long answers, contexts or histories",),
        ("Let the evaluator show less of each field.",),
    ),
}
"""By `error.type` of a failed result; other words are evaluators' own, or classes of what they raised."""


def explanation_of_error(error_type: str) -> Explanation:
    """The explanation of an `error.type`; for a word that is not ours, that it names what was raised."""
    if error_type == names.OTHER:
        return Explanation(
            f"A word that reads like no category, or one beyond {names.MAX_ERROR_TYPES} different ones of a criterion.",
            ("an evaluator that makes up an `error_type` for each failure, or puts a sentence there",),
            ("Use few, short words: they leave the process and are labels of a metric.",),
        )
    return ERROR_TYPES.get(error_type) or Explanation(
        f"The evaluator failed with `{error_type}`: a word of its own, or the class of what it raised.",
        ("a defect of the evaluator, or what it asks is away",),
        ("Run it offline on such an input: `run_evaluation_sync` shows the message.",),
    )
