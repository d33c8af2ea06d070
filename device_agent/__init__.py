"""Floor 0: what a device is, and the words spoken with it. Runs on a camera, so it imports nothing heavy."""

__version__ = "0.1.0"

RELEASED = 1_795_219_200
"""The day of this release, 2026-11-21: no time before it is the present, whatever a clock or a thief says."""
