"""Proofs: bytes in, bytes out. Every way a byte string can be wrong is a ``Refused`` with a reason, and nothing else.

No file here reads a clock, a file or a socket; times and randomness are arguments. COSE and CWT give the envelope
(RFC 9052, RFC 8392), HPKE the sealing (RFC 9180), Ed25519 the signatures (RFC 8032); all of it from ``cryptography``.
"""
