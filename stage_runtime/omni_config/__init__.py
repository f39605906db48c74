"""Configuration of pipelines: what will run where, and why, before anything starts.

Pure Python without torch: resolving and planning read nothing but their arguments and write
nothing.
"""
