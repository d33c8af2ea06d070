"""What the station's API says of SSH devices, as types: the client's side of the contract, like ``views``."""

from __future__ import annotations

from msgspec import Struct


class SshView(Struct, frozen=True):
    """An SSH device; its secrets are never told."""

    name: str
    user: str = ""
    host: str = ""
    port: int = 22
    login: str = ""
    jump: str = ""
    fingerprints: list[str] = []
    host_keys: list[str] = []
    poll_seconds: float = 0.0
    enabled: bool = True
    added: float | None = None
    added_by: str = ""
    # Of the link, as it is now.
    state: str = ""
    why: str = ""
    trouble: str = ""
    connected: bool = False
    next_look_seconds: float = 0.0

    @property
    def address(self) -> str:
        """Where it is, as it is typed."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}:{self.port}"


class HostKeyView(Struct, frozen=True):
    """A host key that a server showed."""

    kind: str
    fingerprint: str
    line: str


class ScanView(Struct, frozen=True):
    """Every host key that a server showed."""

    keys: list[HostKeyView]


class FaultView(Struct, frozen=True):
    """Why a device cannot be as it was said; ``index`` is its place among those that were said together."""

    index: int
    name: str
    field: str
    what: str
    found: str = ""
    allowed: str = ""


class SshDone(Struct, frozen=True):
    """What was done, or with a dry run would be: names of devices. ``room`` is for how many more there was before."""

    done: bool
    added: list[str] = []
    changed: list[str] = []
    left: list[str] = []
    bad: list[FaultView] = []
    room: int | None = None


class KeysCompared(Struct, frozen=True):
    """A device with what is pinned, and what it shows now; ``silent`` says why it shows nothing."""

    device: SshView
    shown: list[HostKeyView] = []
    silent: str = ""
