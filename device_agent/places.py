"""Where things are on a device, unless somebody says another place. It loads nothing: a command line may ask."""

from __future__ import annotations

from pathlib import Path

AGENT_CONFIG = Path("/etc/outstation/agent.yaml")
"""The agent's settings."""
