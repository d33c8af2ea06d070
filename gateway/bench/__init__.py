"""Benchmarks: the whole system beside a lean reference, in one run."""
