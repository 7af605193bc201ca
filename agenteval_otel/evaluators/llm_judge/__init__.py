"""The evaluator `LLMJudge` (`evaluator`), and the presets of the catalogue (`presets`)."""
