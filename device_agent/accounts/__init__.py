"""The accounts of a device: its user, group and shadow files, and the tools that change them."""
