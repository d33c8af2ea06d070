"""One file for each check of ``outstation check``: what was found, what it means, what mends it."""
