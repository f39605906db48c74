"""From frames of codec codes to sound, piece by piece, exactly as if decoded at once."""
