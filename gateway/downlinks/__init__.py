"""Ways down to devices, one file for each transport."""
