"""From token ids to text, as they come."""
