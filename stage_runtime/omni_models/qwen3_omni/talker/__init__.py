"""The talker: frames of codec codes from the thinker's tokens, one frame per step."""
