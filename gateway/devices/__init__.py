"""Who is there: the registry of devices, the sites below, and which keys may join."""
