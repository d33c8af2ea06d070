"""The manual pages, made of what `--help`, the tables of settings and the documentation say already."""
