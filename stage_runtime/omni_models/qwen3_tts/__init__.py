"""Qwen3-TTS: text in, speech out."""
