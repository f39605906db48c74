"""Stubs generated from protos/omni/v1; do not edit."""
