"""Functions that show whether a device answers, what it has, and how it fails."""
