"""Schedules: when something is due, and an agent that runs what is due by itself."""
