"""Whether a private key can be used to log in, asked when it is given and not when it is needed at night."""

from __future__ import annotations

import asyncssh


def key_problem(private_key: str, passphrase: str, certificate: str) -> str:
    """What is wrong with a private key, its passphrase or its certificate, in words; empty when nothing is."""
    try:
        key = asyncssh.import_private_key(private_key, passphrase or None)
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        text = str(error).lower()
        if not passphrase and "passphrase" in text:
            return "it is encrypted, and no passphrase is given"
        if passphrase and ("decrypt" in text or isinstance(error, asyncssh.KeyEncryptionError)):
            return "its passphrase does not open it"
        return "it is no private key, or is damaged"
    if not certificate:
        return ""
    try:
        signed = asyncssh.import_certificate(certificate)
    except asyncssh.KeyImportError:
        return "the certificate is none that OpenSSH would read"
    if signed.key.public_data != key.public_data:
        return "the certificate is for another key"
    return ""
