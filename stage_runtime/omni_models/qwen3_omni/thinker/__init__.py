"""The thinker: SGLang's Qwen3 MoE with embeddings of media from other stages."""
