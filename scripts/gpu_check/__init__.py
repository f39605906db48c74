"""What can be shown of the speech pipeline on one GPU in a few minutes, with a tiny checkpoint."""
