"""From a conversation and its media to token ids and encoder inputs."""
