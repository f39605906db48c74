"""From pictures, video frames and sound to the embeddings that the thinker reads."""
