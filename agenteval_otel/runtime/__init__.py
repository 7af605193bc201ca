"""Helpers around the process that several packages use.

Among them are fork handling, own randomness, the logger and a bounded background thread.
"""
