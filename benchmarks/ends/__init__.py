"""What benchmarks measure from both sides."""
