"""Evaluators of whole conversations: each sees all turns as one input, once the conversation is
over.
"""
