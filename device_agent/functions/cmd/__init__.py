"""Commands on the device."""
