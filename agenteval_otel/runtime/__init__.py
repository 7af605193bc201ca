"""What several packages need of the process: fork handling, own randomness, the logger, a bounded
background thread.
"""
