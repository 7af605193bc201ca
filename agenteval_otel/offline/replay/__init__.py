"""Replay: recorded answers scored again by other evaluators or versions, with their recorded scores
beside the new.
"""
