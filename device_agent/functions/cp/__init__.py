"""Files between the station and the device."""
