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
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import asyncssh
from asyncssh import SSHClientConnection, SSHKey

from gateway.devices.ssh_device import SshDevice
from gateway.devices.ssh_secrets import Secret
from gateway.downlinks.ssh_algorithms import CIPHERS, KEX, MACS, algorithms_of, host_key_algorithms
from gateway.downlinks.ssh_fence import Fence
from gateway.downlinks.ssh_keepalive import accept_any_packet
from gateway.downlinks.ssh_reasons import KeyChanged, Unreached
from gateway.downlinks.ssh_texts import DECODE_ERRORS, TolerantClient, tolerate_questions

WINDOW_BYTES: Final = 256 * 1024
"""What a device may send on a channel before somebody reads it."""

KEYS_KEPT: Final = 64

OnLost = Callable[["Doorkeeper"], None]


class Doorkeeper(TolerantClient):
    """Looks at the host key and at how much is said, gives the password once, and hears when the connection ends."""

    def __init__(self, fingerprints: tuple[str, ...], fence: Fence, on_lost: OnLost, password: str = "") -> None:
        self.fence = fence
        self.new_password = ""
        """What the device says when it wants another password first."""
        self._password: str | None = password or None
        self._fingerprints = fingerprints
        self._on_lost = on_lost
        self.shown = self.kind = ""
        self.met = ""

    def connection_made(self, conn: SSHClientConnection) -> None:
        """Nothing has come yet."""
        super().connection_made(conn)
        accept_any_packet(conn)
        self.fence.guard(conn)

    def validate_host_public_key(self, _host: str, _addr: str, _port: int, key: SSHKey) -> bool:
        """Whether this key is pinned."""
        self.shown, self.kind = key.get_fingerprint(), key.get_algorithm()
        if self.shown not in self._fingerprints:
            return False
        self.met = key.export_public_key("openssh").decode("ascii").strip()
        return True

    def password_auth_requested(self) -> str | None:
        """The password, the first time."""
        tolerate_questions(self.connection)
        password, self._password = self._password, None
        return password

    def password_change_requested(self, prompt: str, _lang: str) -> Any:
        """The device wants another password; only an operator may choose one."""
        self.new_password = prompt.strip() or "another password"
        return NotImplemented

    def kbdint_auth_requested(self) -> str | None:
        """Whether questions can be answered: they can while the password was not given."""
        tolerate_questions(self.connection)
        return None if self._password is None else ""

    def kbdint_challenge_received(
        self, _name: str, _instructions: str, _lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> Sequence[str] | None:
        """The password for a single hidden input, whatever language asks for it; None gives this method up."""
        if not prompts:
            return []
        if len(prompts) > 1 or prompts[0][1] or self._password is None:
            return None
        password, self._password = self._password, None
        return [password]

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
        kinds: Sequence[str] = (),
    ) -> SSHClientConnection:
        """A connection whose host key is pinned and that is logged in. Raises what asyncssh raises, ``Unreached``.

        ``kinds`` are those of the host keys to ask for; without them the pins decide.
        """
        asked = algorithms_of(kinds) if kinds else host_key_algorithms(device.host_keys)
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
                server_host_key_algs=asked,
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
                utf8_decode_errors=DECODE_ERRORS,
                **credentials.options,
            )
        except asyncssh.PermissionDenied:
            if not doorkeeper.new_password:
                raise
            said = f"the device wants a new password first; it said {doorkeeper.new_password!r}"
            raise Unreached("login_refused", said) from None
        except asyncssh.HostKeyNotVerifiable:
            others = () if device.host_keys or kinds else [k for k in doorkeeper.offer.kinds if k != doorkeeper.kind]
            raise changed_key(device, doorkeeper.shown, others) from None
        except (asyncssh.KeyExchangeFailed, asyncssh.ConnectionLost, ConnectionError) as error:
            # A server that takes nothing of what is offered may hang up before asyncssh can say so.
            why = doorkeeper.offer.problem(asked)
            if why.startswith("no common host key"):
                raise KeyChanged(f"it has no key of a kind that is pinned ({_pinned(device)}): {why}") from None
            if why:
                raise Unreached("no_common_algorithm", why) from error
            raise
        finally:
            if credentials.agent is not None:
                credentials.agent.close()

    async def _credentials(self, device: SshDevice, secret: Secret) -> Credentials:
        if device.login == "password":
            preferred = ["password", "keyboard-interactive"]
            return Credentials(
                {
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


def changed_key(device: SshDevice, shown: str, others: Sequence[str]) -> KeyChanged:
    """It is not the device that is pinned, or it is and has another key."""
    return KeyChanged(f"{shown} is not one of the pinned {_pinned(device)}", others)


def _pinned(device: SshDevice) -> str:
    return ", ".join(device.fingerprints)
