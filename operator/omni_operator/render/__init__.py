"""Manifests of every owned kind: pure functions of one pipeline view.

Every field that the API server would default is written, so that a comparison with the live object
shows what a person changed and nothing else.
"""
