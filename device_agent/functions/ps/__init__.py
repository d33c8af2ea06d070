"""Processes, and what the whole machine spends."""
