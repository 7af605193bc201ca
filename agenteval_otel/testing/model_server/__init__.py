"""A model provider on loopback, for tests of agents and judges.

It speaks the wire formats that most clients use, plain and streamed, and fails on demand as providers and networks do.
"""
