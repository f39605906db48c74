"""A package, so that the node that these tests share is gone before others run."""
