"""One login over SSH: by which algorithms, as whom, and past a host key that is pinned and no other.

A key is held against the pinned fingerprints when the device shows it; nothing is ever taken on trust. Only kinds of
keys are asked for of which one is pinned, so that a device with several shows the right one.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import asyncssh
from asyncssh import SSHClient, SSHClientConnection, SSHKey

from gateway.devices.ssh_device import SshDevice
from gateway.devices.ssh_secrets import Secret
from gateway.downlinks.ssh_fence import Fence
from gateway.downlinks.ssh_reasons import Unreached

KEX: Final = (
    "curve25519-sha256",
    "curve25519-sha256@libssh.org",
    "ecdh-sha2-nistp256",
    "diffie-hellman-group14-sha256",
)
CIPHERS: Final = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes128-ctr",
    "aes256-ctr",
)
MACS: Final = (
    "hmac-sha2-256-etm@openssh.com",
    "hmac-sha2-256",
    "hmac-sha2-512-etm@openssh.com",
    "hmac-sha2-512",
    "hmac-sha1",
)
"""The first of each is what costs least; the last ones are all that some cameras know."""

HOST_KEYS: Final = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-256",
    "rsa-sha2-512",
)
SIGNATURES: Final = {"ssh-rsa": ("rsa-sha2-256", "rsa-sha2-512", "ssh-rsa")}
"""By which signatures a kind of host key proves itself, where they have other names."""

WINDOW_BYTES: Final = 256 * 1024
"""What a device may send on a channel before somebody reads it."""

KEYS_KEPT: Final = 64

OnLost = Callable[["Doorkeeper"], None]


class Doorkeeper(SSHClient):
    """Looks at the host key and at how much is said, and hears when the connection ends."""

    def __init__(self, fingerprints: tuple[str, ...], fence: Fence, on_lost: OnLost) -> None:
        self.fence = fence
        self._fingerprints = fingerprints
        self._on_lost = on_lost
        self.shown = ""
        self.met = ""

    def connection_made(self, conn: SSHClientConnection) -> None:
        """Nothing has come yet."""
        self.fence.guard(conn)

    def validate_host_public_key(self, _host: str, _addr: str, _port: int, key: SSHKey) -> bool:
        """Whether this key is pinned."""
        self.shown = key.get_fingerprint()
        if self.shown not in self._fingerprints:
            return False
        self.met = key.export_public_key("openssh").decode("ascii").strip()
        return True

    def connection_lost(self, _error: Exception | None) -> None:
        """It ended."""
        self._on_lost(self)


class Credentials(NamedTuple):
    """What asyncssh is given, and what must be closed after the login."""

    options: dict[str, Any]
    agent: asyncssh.SSHAgentClient | None = None


class Logins:
    """Logs in. Private keys are read once and kept, since many devices share one."""

    def __init__(self, agent_socket: str | None) -> None:
        self._agent_socket = agent_socket or os.environ.get("SSH_AUTH_SOCK")
        self._keys: OrderedDict[bytes, SSHKey] = OrderedDict()

    async def login(
        self,
        device: SshDevice,
        secret: Secret,
        doorkeeper: Doorkeeper,
        *,
        sock: socket.socket | None,
        tunnel: SSHClientConnection | None,
        seconds: float,
    ) -> SSHClientConnection:
        """A connection whose host key is pinned and that is logged in. Raises what asyncssh raises, ``Unreached``."""
        credentials = await self._credentials(device, secret)
        way: dict[str, Any] = (
            {"sock": sock} if sock is not None else {"host": device.host, "port": device.port, "tunnel": tunnel}
        )
        try:
            return await asyncssh.connect(
                **way,
                config=None,
                username=device.user,
                client_factory=lambda: doorkeeper,
                known_hosts=([], [], []),
                server_host_key_algs=host_key_algorithms(device.host_keys),
                kex_algs=KEX,
                encryption_algs=CIPHERS,
                mac_algs=MACS,
                compression_algs=("none",),
                x509_trusted_certs=None,
                x509_trusted_cert_paths=[],
                gss_host=None,
                gss_kex=False,
                gss_auth=False,
                host_based_auth=False,
                agent_path=None,
                agent_identities=None,
                agent_forwarding=False,
                login_timeout=seconds,
                keepalive_interval=0,
                request_pty=False,
                encoding=None,
                window=WINDOW_BYTES,
                **credentials.options,
            )
        except asyncssh.HostKeyNotVerifiable:
            raise changed_key(device, doorkeeper.shown) from None
        except asyncssh.KeyExchangeFailed as error:
            if "host key" not in error.reason:
                raise
            raise changed_key(device, "", error.reason) from None
        finally:
            if credentials.agent is not None:
                credentials.agent.close()

    async def _credentials(self, device: SshDevice, secret: Secret) -> Credentials:
        if device.login == "password":
            preferred = ["password", "keyboard-interactive"]
            return Credentials(
                {
                    "password": secret.password,
                    "preferred_auth": preferred,
                    "client_keys": None,
                    "public_key_auth": False,
                }
            )
        by_key: dict[str, Any] = {"preferred_auth": ["publickey"], "password_auth": False, "kbdint_auth": False}
        if device.login == "agent":
            agent, keys = await self._agent_keys()
            return Credentials({**by_key, "client_keys": keys}, agent)
        key = await self._key(secret)
        if device.login == "key":
            return Credentials({**by_key, "client_keys": [key]})
        certificate = asyncssh.import_certificate(secret.certificate)
        return Credentials({**by_key, "client_keys": [(key, certificate)]})

    async def _agent_keys(self) -> tuple[asyncssh.SSHAgentClient, list[Any]]:
        if not self._agent_socket:
            raise Unreached("login_unusable", "the settings name no SSH agent: set ssh.agent_socket")
        try:
            agent = await asyncssh.connect_agent(self._agent_socket)
        except OSError as error:
            raise Unreached("login_unusable", f"no SSH agent at {self._agent_socket}: {error.strerror}") from None
        try:
            keys = list(await agent.get_keys())
        except ValueError as error:
            agent.close()
            raise Unreached("login_unusable", f"the SSH agent at {self._agent_socket} says: {error}") from None
        if not keys:
            agent.close()
            raise Unreached("login_unusable", f"the SSH agent at {self._agent_socket} holds no key")
        return agent, keys

    async def _key(self, secret: Secret) -> SSHKey:
        digest = hashlib.sha256(f"{secret.private_key}\0{secret.passphrase}".encode()).digest()
        key = self._keys.get(digest)
        if key is None:
            # A passphrase is made slow to try on purpose.
            key = await asyncio.to_thread(asyncssh.import_private_key, secret.private_key, secret.passphrase or None)
            self._keys[digest] = key
            if len(self._keys) > KEYS_KEPT:
                self._keys.popitem(last=False)
        return key


def host_key_algorithms(host_keys: tuple[str, ...]) -> list[str]:
    """The signatures by which the pinned keys prove themselves; of all kinds while only fingerprints are known."""
    kinds = dict.fromkeys(line.split(" ", 1)[0] for line in host_keys)
    return [name for kind in kinds for name in SIGNATURES.get(kind, (kind,))] or list(HOST_KEYS)


def changed_key(device: SshDevice, shown: str, why: str = "") -> Unreached:
    """It is not the device that is pinned, or it is and has another key."""
    pinned = ", ".join(device.fingerprints)
    if not shown:
        return Unreached("host_key_changed", f"it has no key of the kind that is pinned ({pinned}): {why}")
    return Unreached("host_key_changed", f"{shown} is not one of the pinned {pinned}")
