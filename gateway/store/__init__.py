"""The station's SQLite file: one writer with group commit, readers apart, forward migrations."""
