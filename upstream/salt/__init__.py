"""The uplink to stock Salt masters, spoken as a syndic over Salt's ZeroMQ transport (docs/salt-wire.md)."""
