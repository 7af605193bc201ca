"""Explanations: what became of a call, what broke, what an evaluator's error says; in words, with what to do.

Written once, here: `agenteval-otel explain` prints them and `docs/troubleshooting.md` is generated from them. Nothing
on the route of an answer imports this.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from agenteval_otel import semconv as names

__all__ = [
    "ERROR_TYPES",
    "FAILURES",
    "NO_CALLS",
    "OUTCOMES",
    "Explanation",
    "explanation_of_error",
    "explanation_of_failure",
]


class Explanation(NamedTuple):
    """What a word of the accounting means.

    Attributes:
        means: One sentence that goes on from "The call ..." for outcomes, a whole sentence for the rest.
        causes: Likely ones, the likeliest first.
        remedies: What to do, as orders.
        harmless: It is what was asked for; in any number it is no reason to look further.
    """

    means: str
    causes: tuple[str, ...]
    remedies: tuple[str, ...]
    harmless: bool = False


_SLOW = "evaluators are slower than the traffic: a judge that answers late, or one that runs into its time limit"

OUTCOMES: Final[dict[str, Explanation]] = {
    names.EVALUATED: Explanation(
        "was evaluated, and its result was offered to every storage provider",
        (
            "no score although evaluated: the evaluators failed (`agenteval.evaluation.errors`, `error.type`) or had "
            "nothing to say (a skip emits nothing)",
            "a score that is not seen: a storage provider failed (`storage:<type>`), or the export did",
        ),
        ("Look at the errors by `error.type`.", "Call `flush(5.0)`: True says that all of it is saved and exported."),
        True,
    ),
    names.NOT_SAMPLED: Explanation(
        "was passed over by the sampler",
        (
            "the rate is below 1, or the default limit of ten evaluated responses a second is reached",
            "a rule (`error`, `slow`, `agent`, `pattern`, `function`) stands alone and did not match",
        ),
        (
            "Raise `sample_rate`, or put rules for what must not be missed before the ratio: docs/sampling.md.",
            "Nothing, where the share is the one you asked for: means stay honest under sampling.",
        ),
        True,
    ),
    names.DISABLED: Explanation(
        "came while evaluation was switched off",
        (
            "`AGENTEVAL_ENABLED=false` in the environment",
            "`enabled=False` in the settings, for all or for this agent; or `disable()` was called",
        ),
        ("Switch it on again; the outcomes count on from where they stand.",),
        True,
    ),
    names.DROPPED_QUEUE_FULL: Explanation(
        "found the queue full by number (by default 2,048 waiting or under evaluation) and was dropped",
        (
            _SLOW,
            "a burst above what the evaluators manage",
            "an evaluator blocks the pool's event loop: it says that its lane is `free` or `model`, and does not await",
        ),
        (
            "Compare `agenteval.queue.size` with `agenteval.queue.capacity`, and look at `agenteval.evaluation.lag`.",
            "Sample less, limit the rate, or give the dear evaluators a `sample_rate` of their own.",
            "Give slow evaluators a shorter `timeout_s`, or the dispatcher a higher `concurrency` or `max_items`.",
        ),
    ),
    names.DROPPED_BYTES: Explanation(
        "found the queue full by bytes (by default 64 MiB held by its calls) and was dropped",
        ("very large answers, prompts, or facts given to `annotate`", _SLOW),
        (
            "Annotate what evaluators read, not whole documents.",
            "Sample less, or raise the dispatcher's `max_bytes`: it is memory of your process.",
        ),
    ),
    names.DROPPED_RATE: Explanation(
        "came above the limit per second before the ratio could adjust; a loss, not a sample",
        (
            "a burst: the ratio of one second is made from the traffic of the second before",
            "the default limit of ten a second, in a process with little and uneven traffic",
        ),
        (
            "Nothing, where it is a small share.",
            "Set `sample_rate` (it takes the limit away), or raise `max_per_s` of `rate_limit`.",
        ),
    ),
    names.DROPPED_BUDGET: Explanation(
        "was not evaluated because a spend limit is used up",
        ("reserved for spend limits of judges; nothing in this version ends a call so",),
        ("Raise the limit, or sample less.",),
    ),
    names.DROPPED_STEPDOWN: Explanation(
        "was sampled, and passed over because evaluation had stepped down",
        (
            "the queue was filling: " + _SLOW,
            "evaluation took more CPU time than it may, or made the host's event loop late",
        ),
        (
            "Look at `agenteval.sampling.level` and at the log line `sampling_stepped_down`: it names the measure.",
            "Sample less, or give the dear evaluators a `sample_rate` of their own.",
            "Raise the limit that was met, or switch it off: docs/restraint.md.",
        ),
    ),
    names.DROPPED_SHUTDOWN: Explanation(
        "came after `shutdown`, or was not done when the time to stop ran out",
        (
            "the process ended while evaluations were under way: at exit they have two seconds together",
            "calls go on after `shutdown()`",
            "an evaluator or a storage provider hangs",
        ),
        (
            "Call `flush(timeout_s)` before the process ends, in serverless functions before each return.",
            "Call `shutdown(timeout_s)` with more time, as the last thing.",
        ),
    ),
    names.CAPTURE_FAILED: Explanation(
        "had an answer without text that can be had",
        (
            "the handler returned a stream for its caller to read (a client's, an iterator, a `StreamingResponse`)",
            "a `capture=` function raised, or gave something that is not a mapping",
            "the answer or the prompt is an object whose own methods raise",
        ),
        (
            "Look for the log line `part_failed` with `part='capture'`: `said` names the answer's type and the reason.",
            "Of a stream, monitor the generator that makes its pieces instead of the function that hands it on.",
            "Return text, a mapping or an object with `content`, or say it: `annotate(response=...)`.",
        ),
    ),
    names.PIPELINE_FAILED: Explanation(
        "met something of ours, or the sampler, that broke",
        (
            "a sampler raised: a `function` sampler, or a `pattern` that took longer than 0.1 s",
            "an evaluator stopped the pool's event loop for 30 s and the pool was replaced: what it held counts here",
            "no thread can be started: the process is at its limit, or its interpreter is ending",
        ),
        (
            "Look at `failures` and at the log line `part_failed`: they name the part.",
            "Move an evaluator that blocks to the lane `cpu`: it has a process of its own and a time limit.",
        ),
    ),
}

NO_CALLS: Final = Explanation(
    "No call of a monitored handler was counted.",
    (
        "the handler that answers is not the decorated one: decorate it where it is defined",
        "another process answers: every worker counts its own calls",
        "a generator that nobody reads: a stream counts from its first chunk",
    ),
    ("Call the handler once and print `accounting()` in the same process.",),
)

FAILURES: Final[dict[str, Explanation]] = {
    "sampler": Explanation(
        "The sampler raised; the call counts as `pipeline_failed`.",
        ("a sampler of your own, a `function`, or a `pattern` that took longer than 0.1 s",),
        ("Check the sampler with `agenteval_otel.testing.check_sampler`.",),
    ),
    "capture": Explanation(
        "What the handler took or gave could not be read; the call counts as `capture_failed`.",
        ("a `capture=` function that raised", "an answer or prompt whose own methods raise"),
        ("See `capture_failed`.",),
    ),
    "storage:<type>": Explanation(
        "A storage provider failed to save or to close, or took longer than 10 s; the others still saved.",
        ("a full disk, a missing right, a database that is away", "a Collector is never the cause: exports come later"),
        ("Look for the log line `storage_failed`: `part` is the provider's type, `error_type` what was raised.",),
    ),
    "annotate:<fact>": Explanation(
        "A fact given to `annotate` or by `capture=` was left out: its name is unknown or its value does not fit.",
        (
            "a misspelled name; one that is no identifier is told as `other`",
            "a value of another type than the field's",
            "more than 1,000 tool calls: those beyond are left out",
        ),
        ("Look at the log line `fact_left_out`, and compare with the facts that `annotate` knows: `help(annotate)`.",),
    ),
    "redaction:<type>": Explanation(
        "A redactor failed; `[redaction failed]` left the process instead of the text.",
        ("a redactor of your own that raised", "an own pattern that searched longer than its `limit_s`"),
        ("Look for the log line `part_failed`: `part` names the redactor, `error_type` what was raised.",),
    ),
    "restraint": Explanation(
        "What evaluation costs could not be measured; sampling is full, and held back by the queue's bounds alone.",
        ("a dispatcher of your own whose `state` raises or lacks `size`, `capacity` or `bytes`",),
        ("Check the dispatcher with `agenteval_otel.testing.check_dispatcher`.",),
    ),
    "dispatcher": Explanation(
        "A call could not be handed to the dispatcher; it counts as `pipeline_failed`.",
        ("a dispatcher of your own that raised", "the caller's stack is exhausted"),
        ("Check the dispatcher with `agenteval_otel.testing.check_dispatcher`.",),
    ),
    "pipeline": Explanation(
        "Something between the input and the result broke; the call counts as `pipeline_failed`.",
        ("a defect of this package, or of a tracer provider that raises",),
        ("Please report it with the log line `part_failed`.",),
    ),
    "scope": Explanation(
        "The call could not be made the current one, or be undone; the handler and its evaluation were not touched.",
        ("a context that was left from another task or thread than it was entered in",),
        ("Nothing; `annotate` may have missed the call.",),
    ),
    "reload": Explanation(
        "Settings that changed while the process runs could not be used; those from before stay in force.",
        ("the file is wrong, or gone", "a part that it names is not there"),
        ("Look for the log line `reload_failed`: it has every problem with its place.",),
    ),
    "exit": Explanation(
        "Delivering what was pending broke while the process ended.",
        ("a storage provider or a telemetry provider that raised at the interpreter's exit",),
        ("Call `shutdown(timeout_s)` yourself, before the process ends.",),
    ),
}
"""By the part that broke, as `Accounting.failures` counts it; what stands in ``<>`` differs."""

ERROR_TYPES: Final[dict[str, Explanation]] = {
    "timeout": Explanation(
        "The evaluator took longer than its limit: 5 s in the lane `cpu`, 30 s in `model`, or its `timeout_s`.",
        ("a judge that answers late", "a pattern of a rule that searched longer than its limit"),
        ("Give it a `timeout_s` that fits, or a smaller `sample_rate`.",),
    ),
    "quarantined": Explanation(
        "The evaluator would not stop at its limit, or ended its process, three times; since then it fails at once.",
        ("it blocks or computes without a limit of its own, or swallows its cancellation", "it crashes: see `crashed`"),
        ("Give what it waits for a time limit, and restart the process.",),
    ),
    "crashed": Explanation(
        "The child process of the lane `cpu` ended while it was at this evaluation.",
        ("a crash in an extension module, `os._exit`, or the system's memory limit",),
        ("Run the evaluator on the same input with `run_evaluation`, in a process that may die.",),
    ),
    "lane_full": Explanation("8,192 evaluations waited for the lane `cpu`.", (_SLOW,), ("Sample less.",)),
    "cancelled": Explanation(
        "The evaluator cancelled itself.", ("its own code cancels its task",), ("Raise `EvaluationSkipped` instead.",)
    ),
    "wrong_lane": Explanation(
        "An evaluator in the lane `cpu` awaited something.",
        ("`evaluate` awaits, and `lane` says `cpu`",),
        ("Let `lane` give `model`.",),
    ),
    "invalid_score": Explanation(
        "What the evaluator gave is no score: NaN, an infinity, a number beyond every float, or no `Score` at all.",
        ("a division by nothing in its code",),
        ("Raise `EvaluationSkipped` where there is nothing to say.",),
    ),
    "invalid_result": Explanation(
        "The evaluator gave no list of results, or one for a criterion that it does not declare.",
        ("`criteria` and `evaluate` do not agree",),
        ("Check it with `agenteval_otel.testing.check_evaluator`.",),
    ),
    "missing_text": Explanation(
        "A rule or a keyword check looks at a field that this input does not have.",
        ("a path below `context` that nobody annotated",),
        ("Give it with `annotate(context=...)`, or change the field.",),
    ),
}
"""By `error.type` of a failed result; other words are evaluators' own, or classes of what they raised."""


def explanation_of_failure(part: str) -> Explanation | None:
    """The explanation of a part as it was counted, such as ``storage:json_file``; None for an unknown one."""
    found = FAILURES.get(part)
    if found is not None:
        return found
    kind = part.partition(":")[0]
    return next((text for known, text in FAILURES.items() if known.partition(":")[0] == kind), None)


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
