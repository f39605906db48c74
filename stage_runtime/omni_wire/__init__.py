"""What travels between process groups: generated protobuf stubs, tensor frames and edges.

Both ends of every stream share this package and nothing else, so that a gateway needs no
torch to forward what a stage computed.
"""
