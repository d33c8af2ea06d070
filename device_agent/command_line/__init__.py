"""The command line of a device, ``outstation-agent``; ``outstation agent`` says and does the same."""
