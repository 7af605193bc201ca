"""The public names: a change here is a change for users, and is meant."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import agenteval_otel

NAMES: dict[str, list[str]] = {
    "agenteval_otel": [
        "AggregatedEvaluationResult", "EvaluationCriteria", "EvaluationInput", "EvaluationResult",
        "EvaluationRunConfig", "EvaluationRunner", "Score", "Settings", "Suite", "SuiteResult", "accounting",
        "annotate", "configure", "disable", "enable", "flush", "monitor", "reload", "run_evaluation",
        "run_evaluation_sync", "run_evaluations", "run_evaluations_sync", "shutdown",
    ],
    "agenteval_otel.capture": [
        "Arguments", "CURRENT", "Call", "CapturedCall", "Detached", "EVALUATING",
        "Facts", "Reading", "Taken", "Turn", "Unreadable", "build_input", "field",
        "response_format", "take", "usage_of",
    ],
    "agenteval_otel.cli": [
        "main",
    ],
    "agenteval_otel.compat": ["ENTRIES", "load_entries", "load_evaluator"],
    "agenteval_otel.components": [
        "Component", "Explained", "ListOf", "PartError", "choices", "explain_validation", "load_each", "near",
        "resolve", "resolve_or_wrap",
    ],
    "agenteval_otel.config": [
        "AgentSettings", "Criterion", "Loaded", "Problem", "Settings", "SettingsError", "accounting", "build",
        "configure", "current_pipeline", "default_pipeline", "disable", "enable", "flush", "load_settings", "reload",
        "set_current_pipeline", "shutdown",
    ],
    "agenteval_otel.dispatch": [
        "Dispatcher", "Done", "InlineDispatcher", "PoolDispatcher", "one_by_one",
    ],
    "agenteval_otel.embedders": [
        "CallableEmbedder", "Embedded", "Embedder", "EmbedderUsage", "HashingEmbedder", "OpenAICompatibleEmbedder",
        "SentenceTransformerEmbedder", "as_embedder",
    ],
    "agenteval_otel.errors": [
        "AgentEvalError", "CaptureError", "ConfigurationError", "EmbedderError", "EvaluationError", "EvaluationSkipped",
        "JudgeError", "ModelError", "StorageError",
    ],
    "agenteval_otel.evaluators": [
        "AnswerQuality", "Bias", "CodeVulnerability", "Coherence", "CompletedWithin", "Completeness", "Contains",
        "ContentHarm", "CostWithin", "CriterionEvaluator", "Equivalence", "Evaluator", "ExactMatch", "Fluency", "Func",
        "Groundedness", "HateAndUnfairness", "Includes", "IndirectAttack", "IntentResolution", "Json", "JsonSchema",
        "KeywordCount", "KeywordCoverage", "LLMJudge", "Length", "LexicalSimilarity", "NLPAccuracy",
        "ProtectedMaterial", "Regex", "Relevance", "ResponseHealth", "Retrieval", "Rubric", "RuleBased", "RuleCheck",
        "RuleFailure", "SelfHarm", "Sentiment", "Sexual", "TaskAdherence", "ToolCallAccuracy", "ToolUsage", "ToolUse",
        "ToxicLanguage", "Toxicity", "Truth", "UngroundedAttributes", "Violence", "as_evaluator",
    ],
    "agenteval_otel.ground_truth": [
        "CsvGroundTruthStore", "FileGroundTruthStore", "GroundTruth", "GroundTruthStore", "JsonlGroundTruthStore",
        "load_store", "module_of", "with_ground_truth",
    ],
    "agenteval_otel.http_client": ["HostedModel"],
    "agenteval_otel.instrumentation": [
        "annotate", "monitor",
    ],
    "agenteval_otel.intervals": [
        "Difference", "Estimate", "WeightedSums", "Z_95", "difference_of", "estimate_of", "wilson_interval",
    ],
    "agenteval_otel.judges": [
        "AnthropicJudge", "BreakerSettings", "CacheSettings", "CallableJudge", "ERROR_TYPES", "Guarded", "Judge",
        "JudgeRequest", "JudgeUsage", "OpenAICompatibleJudge", "SpendLimits", "Verdict", "as_judge", "parse_answer",
    ],
    "agenteval_otel.masking": [
        "MASK", "is_secret", "mask", "mask_known", "mask_text", "message_of", "printable", "split_address",
    ],
    "agenteval_otel.models": [
        "AggregatedEvaluationResult", "EvaluationCriteria", "EvaluationInput", "EvaluationResult", "MemoryStats",
        "Message", "RunError", "Score", "ScoreLike", "ScoreValue", "SpanReference", "StreamEnd", "ToolCall", "Usage",
    ],
    "agenteval_otel.objectives": [
        "BreachSettings", "Callback", "ObjectiveCrossing", "ObjectiveSettings", "Objectives", "load_callback",
    ],
    "agenteval_otel.pipeline": [
        "EXIT_TIMEOUT_S", "Pipeline", "handle_sigterm",
    ],
    "agenteval_otel.plugins": ["import_plugins"],
    "agenteval_otel.provisioning": [
        "MonitoringPlan", "PlannedCriterion",
    ],
    "agenteval_otel.registry": [
        "Registry",
    ],
    "agenteval_otel.execution": [
        "Executor", "MAX_STRIKES", "let_processes_go",
    ],
    "agenteval_otel.engine": [
        "EvaluationRunConfig", "EvaluationRunner", "RunOutcome", "Suite", "SuiteResult", "SuiteScore",
        "aggregate", "run_evaluation", "run_evaluation_sync", "run_evaluations", "run_evaluations_sync",
    ],
    "agenteval_otel.runtime": [],
    "agenteval_otel.redaction": [
        "KINDS", "PatternRedactor", "Redactor", "default_redactors", "load_redactors",
    ],
    "agenteval_otel.sampling": [
        "AgentSampler", "AnswerFacts", "AnyOfSampler", "ConversationSampler", "DisagreementSampler", "ErrorSampler",
        "Escalation", "FailureSampler", "FirstOfSampler", "FunctionSampler", "LabelSampler", "PatternSampler",
        "RateLimitSampler", "RatioSampler", "ResultSampler", "RuleSampler", "Sampler", "SamplingContext",
        "SamplingDecision", "ScoreSampler", "SlowSampler", "randomness_of",
    ],
    "agenteval_otel.scoring": [
        "AgentDockCriteria", "Aggregation", "Scored", "WeightedMean", "check_criteria", "label_of", "normalize",
        "off_scale", "overall_score",
        "passed_of",
    ],
    "agenteval_otel.semconv": [
        "INSTRUMENTS", "Instrument", "OUTCOMES", "criterion_label", "criterion_score", "wrong_criterion_name",
    ],
    "agenteval_otel.storage": [
        "ConsoleStorageProvider", "EvaluationStorageProvider", "FanOutStorage", "JsonFileStorageProvider",
        "OtlpStorageProvider", "SqlStorageProvider", "StoredResult",
    ],
    "agenteval_otel.telemetry": [
        "Accounting", "OtlpTarget", "Providers",
    ],
    "agenteval_otel.testing": [
        "AWKWARD_INPUTS", "InlineDispatcher", "ManualClock", "ModelReply", "ModelServer", "RecordedTelemetry",
        "ScriptedJudge",
        "check_aggregation", "check_component", "check_dispatcher", "check_embedder", "check_evaluator",
        "check_ground_truth", "check_sampler", "check_storage",
    ],
}  # fmt: skip


def all_of(module: str) -> list[str]:
    return sorted(importlib.import_module(module).__all__)


@pytest.mark.parametrize("module", NAMES)
def test_the_names_are_these(module: str) -> None:
    """The top level and each package offer exactly these names, and every one of them is there."""
    assert all_of(module) == NAMES[module]
    found = importlib.import_module(module)
    for name in NAMES[module]:
        assert getattr(found, name) is not None


def test_every_room_is_in_the_snapshot() -> None:
    """A new room shows its names here."""
    rooms = {
        f"agenteval_otel.{room.name}"
        for room in pkgutil.iter_modules(agenteval_otel.__path__)
        if room.name != "__main__"
    }
    assert rooms | {"agenteval_otel"} == set(NAMES)


def test_the_front_door_gives_the_rooms_own() -> None:
    """What the top of the package offers are the objects of their rooms."""
    for name in agenteval_otel.__all__:
        room = agenteval_otel._ROOM_OF[name]
        assert getattr(agenteval_otel, name) is getattr(importlib.import_module(f"agenteval_otel.{room}"), name)
