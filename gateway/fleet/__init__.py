"""The fleet's own business: its root keys, its masters, what a station keeps of it. Files, and no network."""
