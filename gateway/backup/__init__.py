"""Backups of a gateway: taken while it runs, encrypted, and put back on the hardware that takes its place."""
