"""The door of a running pipeline: the Coordinator behind a gRPC service and an HTTP API.

It binds requests to stage instances and passes on terminal output only; data between stages
never crosses it.
"""
