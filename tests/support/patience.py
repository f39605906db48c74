"""How long tests wait for what must come."""

PATIENT_SECONDS = 60.0
"""More than anything takes that works, however busy the machine: only a broken test gets there."""

PROGRAM_SECONDS = 200.0
"""The same for a program that imports what is heavy, from a disk that nobody has read yet."""
