"""Files and directories of the device."""
