"""One archive that tells somebody far away how a station does, and nothing that is secret."""
