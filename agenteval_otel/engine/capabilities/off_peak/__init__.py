"""Evaluates answers in a window of the day, or by the batch API of a judge's provider."""
