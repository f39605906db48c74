"""Chat over a pipeline: conversations in, text and speech out, whatever API they came by.

The gRPC and the HTTP API translate to and from the types here; neither knows the other, and the
pipeline's stages know neither.
"""
