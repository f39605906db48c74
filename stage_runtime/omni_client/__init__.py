"""The Python SDK for a running pipeline, synchronous and asynchronous.

It stays light enough to install in any application: gRPC, protobuf and numpy.
"""
