"""How the device is."""
