"""How the command line of a station ends when something goes wrong: as that of a device does."""

from __future__ import annotations

from device_agent.command_line.failures import DEBUG_VARIABLE, INTERRUPTED, complain, guarded, report

__all__ = ["DEBUG_VARIABLE", "INTERRUPTED", "complain", "guarded", "report"]
