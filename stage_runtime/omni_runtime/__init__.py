"""A process group: the shell that hosts stages, feeds them and sends what they make onwards.

Everything heavy sits behind `sglang_bridge`; the rest runs on a machine without torch, so that
the launcher and light stages start quickly.
"""
