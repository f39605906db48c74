"""The `omni` command: configuration, plans, local launch, chat and diagnosis.

It imports neither torch nor a framework at start, because a command that explains a plan has to
answer at once.
"""
