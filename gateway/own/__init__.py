"""The station itself as a device: its machine's grains, and the jobs that it takes in its own name."""
