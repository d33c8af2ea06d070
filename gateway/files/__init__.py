"""The files that a station serves: those of its own roots, and what it keeps of those above it."""
