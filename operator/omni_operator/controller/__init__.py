"""The running operator: watches fill a store, a keyed queue decides what to look at, workers carry
out what the planner says.

Everything here is I/O or its timing. What should be done is decided by pure functions elsewhere.
"""
