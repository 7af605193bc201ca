"""The public names: a change here is a change for users. Every other package is private."""

from __future__ import annotations

import importlib
import sys

import pytest

import agenteval_otel

NAMES: dict[str, list[str]] = {
    "agenteval_otel": [
        "AggregatedEvaluationResult", "EvaluationCriteria", "EvaluationInput", "EvaluationResult",
        "EvaluationRunConfig", "EvaluationRunner", "Score", "Settings", "Suite", "SuiteResult", "accounting",
        "annotate", "configure", "disable", "enable", "erase", "evaluation_reference", "flush", "monitor",
        "record_feedback", "record_ground_truth", "record_score", "reload", "report", "run_evaluation",
        "run_evaluation_sync", "run_evaluations", "run_evaluations_sync", "shutdown",
    ],
    "agenteval_otel.capture": ["Facts", "Reading", "Turn", "field", "response_format", "usage_of"],
    "agenteval_otel.components": ["Component", "ListOf"],
    "agenteval_otel.embedders": [
        "Embedder", "HashingEmbedder", "OpenAICompatibleEmbedder", "SentenceTransformerEmbedder",
    ],
    "agenteval_otel.errors": [
        "AgentEvalError", "ConfigurationError", "EvaluationError", "EvaluationSkipped", "GroundTruthError",
        "JudgeError", "ModelError", "StorageError",
    ],
    "agenteval_otel.evaluators": [
        "Bias", "CodeVulnerability", "Coherence", "CompletedWithin", "Completeness", "Contains", "Contradiction",
        "CostWithin", "CriterionEvaluator", "DefinedTools", "Equivalence", "ErrorRecovery", "Evaluator", "ExactMatch",
        "ExpectedCall", "Fluency", "Func", "Groundedness", "HateAndUnfairness", "Includes", "IndirectAttack",
        "IntentResolution", "Json", "KeywordCount", "KeywordCoverage", "LLMJudge", "Length", "LexicalSimilarity",
        "NLPAccuracy", "ProtectedMaterial", "Regex", "Relevance", "Repetition", "ResponseHealth", "Retrieval", "Rubric",
        "RuleBased", "RuleCheck", "SelfHarm", "Sentiment", "Sexual", "StepEfficiency", "TaskAdherence",
        "ToolCallAccuracy", "ToolLoops", "ToolUsage", "ToolUse", "ToxicLanguage", "Toxicity", "TrajectoryMatch",
        "Truth", "TurnsToResolution", "UnansweredQuestions", "UngroundedAttributes", "Violence",
    ],
    "agenteval_otel.ground_truth": ["FileGroundTruthStore", "GroundTruth", "GroundTruthStore", "SqlGroundTruthStore"],
    "agenteval_otel.instrumentation": ["annotate", "evaluation_reference", "monitor"],
    "agenteval_otel.instrumentation.asgi": ["AgentEvalMiddleware"],
    "agenteval_otel.instrumentation.instrumentor": ["AgentEvalInstrumentor"],
    "agenteval_otel.instrumentation.wsgi": ["AgentEvalMiddleware"],
    "agenteval_otel.judges": [
        "AnthropicJudge", "BreakerSettings", "CacheSettings", "Judge", "JudgeRequest", "JudgeUsage",
        "OpenAICompatibleJudge", "OpenAIJudge", "SpendLimits", "Verdict", "parse_answer",
    ],
    "agenteval_otel.mappers": [
        "Mapped", "ReadEvent", "ReadSpan", "Role", "SpanMapper", "TraceReading", "read_trace", "span_mapper",
    ],
    "agenteval_otel.redaction": ["PatternRedactor", "Redactor", "default_redactors"],
    "agenteval_otel.sampling": [
        "AgentSampler", "AnnotationSampler", "AnswerFacts", "ConversationSampler", "ErrorSampler", "Escalation",
        "FirstOfSampler", "FunctionSampler", "PatternSampler", "RateLimitSampler", "RatioSampler", "ResultSampler",
        "RuleSampler", "Sampler", "SamplingContext", "SamplingDecision", "SlowSampler",
    ],
    "agenteval_otel.storage": [
        "ConsoleStorageProvider", "EvaluationStorageProvider", "JsonFileStorageProvider", "LangfuseStorageProvider",
        "MlflowStorageProvider", "OtlpStorageProvider", "PhoenixStorageProvider", "SqlStorageProvider",
        "SqliteStorageProvider", "StoredResult",
    ],
    "agenteval_otel.testing": [
        "CassetteJudge", "ManualClock", "ModelReply", "ModelServer", "RecordedTelemetry", "ScriptedJudge",
        "check_component", "check_embedder", "check_evaluator", "check_ground_truth", "check_sampler", "check_storage",
    ],
}  # fmt: skip


def all_of(module: str) -> list[str]:
    return sorted(importlib.import_module(module).__all__)


@pytest.mark.parametrize("module", NAMES)
def test_the_names_are_these(module: str) -> None:
    """The top level and each package offer exactly these names, and every one of them is there."""
    assert all_of(module) == NAMES[module]
    result = importlib.import_module(module)
    for name in NAMES[module]:
        assert getattr(result, name) is not None


def test_names_of_the_top_level_come_from_their_packages() -> None:
    """The names of the top level are the objects of their packages, and keep their names."""
    for name in agenteval_otel.__all__:
        offered = getattr(agenteval_otel, name)
        home = sys.modules[offered.__module__]
        assert home.__name__.startswith("agenteval_otel.")
        assert getattr(home, name) is offered
