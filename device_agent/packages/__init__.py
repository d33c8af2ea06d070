"""The ways in which devices install software, one file each; ``found`` says which one a host has."""
