"""Floor 2: the station, and the ways people talk to it."""
