"""Evaluators of whole conversations.

Each sees all turns as one input, once the conversation is over.
"""
