"""`python -m benchmarks speed`: one table of what monitoring costs, with the rivals in the same
run.

Each (subject, row, round) is a process of its own, and the subjects take turns. Everything "kept"
is counted where it arrives: at a receiver in another process, or in the exporter. Ours is used
through its public names only.
"""
