"""What should be in the cluster and what to do next: pure functions of the object, of what is
observed and of a clock."""
