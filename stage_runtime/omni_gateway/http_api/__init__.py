"""The HTTP API: what OpenAI's clients speak, with fields of ours beside it.

Requests become the same chat requests as those of the gRPC API; only words differ.
"""
