"""The control plane: turns an `OmniPipeline` object into pods, one per process group.

It decides with pure functions and touches Kubernetes in one place only, so that every plan
can be tested without a cluster. It never imports the runtime, nor anything that needs a GPU.
"""
