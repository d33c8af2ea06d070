"""What must still go up, and what has come up: each item exactly once."""
