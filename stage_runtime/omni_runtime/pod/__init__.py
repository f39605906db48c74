"""The process of a stage container: starts its process groups and answers Kubernetes' probes."""
