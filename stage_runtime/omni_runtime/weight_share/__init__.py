"""One copy of a model's weights for several processes on one device.

The leader loads a module as it would alone, moves its parameters into memory that others can map,
and keeps a socket open. A follower builds the same module without memory, checks that it would have
loaded the same, and lays its parameters over the leader's. Both hold the connection: its end is the
leader's end, and a follower ends with it.

`role` and `offer` are light; what needs torch is imported by whoever builds a model.
"""
