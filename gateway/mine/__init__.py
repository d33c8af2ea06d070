"""The mine: what devices keep at their station for others to read."""
