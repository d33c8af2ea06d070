"""``python -m device_agent``: the program of a device, for a unit that needs no script."""

from device_agent.command_line.program import entry

if __name__ == "__main__":
    entry()
