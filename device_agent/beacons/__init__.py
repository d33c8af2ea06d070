"""Beacons: what a device watches on itself, and says by itself when there is something to say."""
