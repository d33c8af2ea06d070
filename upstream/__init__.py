"""Floor 1: the rope between a gateway and the masters above it, both ends."""
