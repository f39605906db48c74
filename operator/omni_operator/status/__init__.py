"""What is said about a pipeline: conditions, rows, events. Pure, from the facts of the plan."""
