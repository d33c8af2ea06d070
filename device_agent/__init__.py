"""Floor 0: what a device is, and the words spoken with it. Runs on a camera, so it imports nothing heavy."""

__version__ = "0.1.0"
