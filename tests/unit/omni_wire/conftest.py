"""Property tests here judge what the wire does, never how long a busy machine took for it."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
