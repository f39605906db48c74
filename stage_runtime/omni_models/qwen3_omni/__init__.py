"""Qwen3-Omni: text, pictures, audio and video in; text and speech out."""
