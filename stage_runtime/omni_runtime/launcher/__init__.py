"""Runs a planned pipeline on one machine: a process per group, a gateway, one terminal."""
