"""Media that clients send or point to: fetched within bounds, decoded within bounds."""
