"""Sentiment: how an answer sounds, by its words. Lexica are in `lexicon`, what counts as a word in `tokens`."""

from __future__ import annotations

from agenteval_otel.evaluators.sentiment.evaluator import Sentiment

__all__ = ["Sentiment"]
