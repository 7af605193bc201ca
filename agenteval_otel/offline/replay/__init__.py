"""Replay: recorded answers scored again by other evaluators or versions.

Their recorded scores stand beside the new ones.
"""
