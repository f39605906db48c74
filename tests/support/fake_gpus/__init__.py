"""GPUs for a node that has none: Kubernetes counts and allocates them, nothing computes on them."""
