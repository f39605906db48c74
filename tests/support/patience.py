"""How long tests wait for what must come."""

PATIENT_SECONDS = 60.0
"""More than anything takes that works, however busy the machine: only a broken test gets there."""
