"""The audit: who asked for what, what was answered, and what came of it. Kept here and told to the masters."""
