"""The engines of the release: each a file with ``start(**options)``, as those of a site."""
