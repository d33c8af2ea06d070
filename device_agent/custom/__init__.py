"""Code that a site brings to a device beside its release: signed, kept, loaded."""
