"""Returners: what the devices answer to a job is also sent elsewhere, as ``ret`` and ``--return`` of Salt say."""
