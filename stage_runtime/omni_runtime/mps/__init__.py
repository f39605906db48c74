"""Leases on NVIDIA MPS control daemons, one per physical GPU, on one host or in one container.

A lease starts the daemon or joins the one that another run started. It never touches a daemon that
it cannot prove to be its own kind's, and it gives back what it took. What a crashed owner left is
cleaned up as soon as it can be proven that nobody uses it; until then the next start is refused
with the evidence.
"""
