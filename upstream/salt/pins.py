"""Which public key each Salt master has: kept at the first contact, or placed here; and who vouches for new ones."""

from __future__ import annotations

import contextlib
import ipaddress
import os
from pathlib import Path
from urllib.parse import quote

from device_agent.durable import open_regular, replace_private
from device_agent.errors import ConfigInvalid, Refused
from upstream.salt.rsa_keys import PEM_CHARACTERS, MasterKey, plain
from upstream.salt.terms import endpoint


class Pins:
    """One file in PEM for each master, named by its host and port, in a folder of our own."""

    def __init__(self, folder: Path, port: int) -> None:
        """``port`` is that of an address that does not say one."""
        self._folder = folder
        self._port = port

    def place(self, address: str) -> Path:
        """Where the key of the master with this address is kept; a key that is put here beforehand is believed."""
        return self._file(self._one_spelling(address))

    def known(self, address: str) -> MasterKey | None:
        """The key that this master must have; None before the first contact.

        Raises ``ConfigInvalid`` when there is a file and no key in it: that is not a first contact.
        """
        for path in dict.fromkeys(map(self._file, self._spellings(address))):
            words = f"copy the master's master.pub to {path}, or remove it to trust the next key it shows"
            if (key := _read(path, "master.pub", words)) is not None:
                return key
        return None

    def signing_place(self, name: str) -> Path:
        """Where the masters' signing key of this name is to be put."""
        return self._folder.parent / f"{name}.pub"

    def signing(self, name: str) -> MasterKey | None:
        """The key that signs masters' keys; None while nobody has put it there. Raises ``ConfigInvalid``."""
        path = self.signing_place(name)
        return _read(path, f"{name}.pub", f"copy {name}.pub of the master there anew")

    def keep(self, address: str, key: MasterKey) -> None:
        """From now on this master must have this key. Raises ``OSError``."""
        self._write(self.place(address), key.pem)

    def set_aside(self, address: str, pem: str) -> Path:
        """Put a key that is not believed beside the one that is, for an operator to look at. Raises ``OSError``."""
        path = self.place(address).with_suffix(".refused")
        self._write(path, plain(pem)[:PEM_CHARACTERS])
        return path

    def _write(self, path: Path, pem: str) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = self._folder.stat()
        owner = (folder.st_uid, folder.st_gid) if os.geteuid() == 0 else None
        replace_private(path, f"{pem}\n".encode("utf-8", "replace"), owner)

    def _file(self, spelling: str) -> Path:
        return self._folder / f"{quote(spelling, safe='')}.pub"

    def _spellings(self, address: str) -> list[str]:
        """Under which names its key may be: files were once named by the address as it stood in the settings."""
        one = self._one_spelling(address)
        found = [one, address]
        if one.endswith(f":{self._port}"):
            found.append(one.removesuffix(f":{self._port}"))
        return found

    def _one_spelling(self, address: str) -> str:
        """Host and port, the same for all ways to write them; what is no address stays as it is."""
        try:
            host, port = endpoint(address, self._port)
        except ValueError:
            return address
        if host.startswith("["):
            with contextlib.suppress(ValueError):
                host = f"[{ipaddress.IPv6Address(host[1:-1])}]"
        return f"{host.lower()}:{port}"


def _read(path: Path, original: str, hint: str) -> MasterKey | None:
    try:
        with open_regular(path) as file:
            return MasterKey(file.read(PEM_CHARACTERS + 1).decode("ascii"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, Refused) as error:
        raise ConfigInvalid(
            "the key of a Salt master cannot be read",
            where=str(path),
            found=str(error),
            allowed=f"an RSA public key in PEM, as in the master's pki/master/{original}",
            hint=hint,
        ) from None
