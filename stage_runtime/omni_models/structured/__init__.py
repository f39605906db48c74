"""Answers that must look like something: JSON, or calls of tools."""
