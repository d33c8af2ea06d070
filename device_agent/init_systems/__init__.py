"""The ways in which devices start their services, one file each; ``found`` says which one a host has."""
