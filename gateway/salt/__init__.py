"""Stock Salt masters above a gateway, and what comes from a box that ran Salt."""
