"""The Kubernetes API of the project: what a user writes and what the operator answers.

Models here are the single source of `crds/`; descriptions are what `kubectl explain` prints.
"""
